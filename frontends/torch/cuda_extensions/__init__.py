"""Extensions that a program compiles from C++ and CUDA sources: their host code, followed."""
