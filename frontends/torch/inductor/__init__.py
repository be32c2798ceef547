"""``torch.compile`` for an absent GPU: Inductor's own kernels, recorded.

The idea: Dynamo, AOTAutograd and Inductor run unchanged, and Inductor generates its program for the
named GPU, including the Triton sources; Triton compiles nothing.  Then the program that Inductor
generated runs on fake tensors: it allocates and calls libraries and collectives like any eager
code, and each of its kernels is one op of the recording that states what it reads, writes and
computes.

    apply()                     # torch.compile compiles; without it, it leaves code as it is
"""
