"""Operations of sparse attention, one folder each: a plain-torch reference and what is faster.

Callers use the function of the package (`longctx.kernels.block_scores.block_scores`, ...) and never
ask what device they run on. Nothing here knows models, documents or files.
"""
