// Destination of a quant epilogue's output (quant_epilogue): none. For kernels with one, generated text
// (codegen) replaces this file; no other kernel imports it.
