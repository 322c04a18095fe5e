"""Tests of answering; `engines.tiny_model` serves other tests too."""
