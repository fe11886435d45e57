"""The operator `distinct`: of rows that repeat, the first one."""
