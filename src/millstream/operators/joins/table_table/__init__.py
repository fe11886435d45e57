"""The join of two tables: a view that is kept up to date."""
