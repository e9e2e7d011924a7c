// The sums of a matvec_codes_*, and their put. Part of its main.
#ifdef headers
#import codes_headers
#else
#ifdef eights
#import codes_eights
#else
#ifdef trits
#import codes_trits
#else
#ifdef blocks
#import codes_blocks
#else
#ifdef several
#import codes_several
#else
#import codes_units
#endif
#endif
#endif
#endif
#endif
