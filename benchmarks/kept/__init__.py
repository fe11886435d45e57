"""Our own code, compared with libraries that could replace it; each module is run by hand."""
