//! Every kernel in the interpreter, which finds races and accesses out of bounds. Takes minutes.

mod interpret_kernels;
mod interpret_math;
