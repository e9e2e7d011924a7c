// Selects the inner loop of a matvec_prequant_*, which also puts its sums. Part of main.
#ifdef headers
#import prequant_headers
#elifdef eights
#import prequant_eights
#elifdef trits
#import prequant_trits
#elifdef blocks
#import prequant_blocks
#elifdef several
#import prequant_several
#else
#import prequant_units
#endif
