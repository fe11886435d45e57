"""Jobs: pipelines that run in processes of their own, watched and started again.

book (what is wanted) → supervisor (what is done about it) → job processes → diaries (what was)
"""
