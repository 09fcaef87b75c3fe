"""The CPU target: LLVM code through llvmlite."""
