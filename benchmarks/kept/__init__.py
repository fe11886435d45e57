"""Code of our own beside the libraries that could replace it; each module is run by hand."""
