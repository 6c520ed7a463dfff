"""The steps of `compact-history`: build and commit segments, merge them, trim the table."""
