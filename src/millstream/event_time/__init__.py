"""Event time: watermarks, idle partitions, late rows.

rows -- largest time per partition --> watermark -- idle ones left out --> what may close
"""
