// Start of matvec_mma_q4_0x8: groups are read as blocks of Q4_K, header first. Part of main.
#import mma_begin_q4_k
