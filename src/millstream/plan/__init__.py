"""The graph of specs: what a pipeline means, before anything runs.

reads -- stateless --> stateful -- stateless --> outputs
  └────────── stages: one piece of work each, in order ──────────┘
"""
