"""Tests of segments, the store, corpora, passages and citations."""
