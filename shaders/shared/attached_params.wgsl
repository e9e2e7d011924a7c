// Parameters of an attachment: none. Generated text takes the place of this file (codegen/attach.rs).
