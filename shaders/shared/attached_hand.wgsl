// Destination of a quant epilogue's output (hand_on): none. For kernels with one, generated text
// (codegen) replaces this file; no other kernel imports it.
