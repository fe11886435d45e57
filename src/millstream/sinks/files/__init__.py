"""Folders of files as sinks: a manifest, formats, and the parts of each batch."""
