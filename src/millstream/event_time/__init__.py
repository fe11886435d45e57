"""Rows get a time: watermarks, idleness, and what is late.

rows -- largest time per partition --> watermark -- idle ones left out --> what may close
"""
