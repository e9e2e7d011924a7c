// Parameters of a kernel's fusion: none. With a fusion, generated text (codegen) replaces this
// file.
