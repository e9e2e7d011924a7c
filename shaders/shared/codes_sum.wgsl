// Selects the inner loop of a matvec_codes_*, which also puts its sums. Part of main.
#ifdef headers
#import codes_headers
#elifdef eights
#import codes_eights
#elifdef trits
#import codes_trits
#elifdef blocks
#import codes_blocks
#elifdef several
#import codes_several
#else
#import codes_units
#endif
