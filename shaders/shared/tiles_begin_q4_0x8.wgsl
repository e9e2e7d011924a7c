// Start of matvec_tiles_q4_0x8: groups are read as blocks of Q4_K, header first. Part of main.
#import tiles_begin_q4_k
