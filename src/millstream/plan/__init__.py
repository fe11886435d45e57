"""The logical graph of a pipeline, its checks and its stages, before anything runs.

reads -- stateless --> stateful -- stateless --> outputs
  └──────────────── stages, in order ───────────────┘
"""
