// The beginning of a matvec_tiles_q4_0x8: groups are read as blocks of Q4_K are, header first. Part of its main.
#import tiles_begin_q4_k
