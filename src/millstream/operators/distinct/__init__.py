"""The operator `distinct`: drops repeated rows."""
