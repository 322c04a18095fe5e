"""Tests of indexing, scoring and choosing."""
