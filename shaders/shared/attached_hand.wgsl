// Where codes of what a workgroup stores go (hand_on): nowhere. Generated text takes the place of this file where a
// kernel hands on (codegen/attach.rs); no other kernel asks for it.
