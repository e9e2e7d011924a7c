// The sums of a matvec_codes_*, and their put. Part of its main.
#ifdef headers
#import codes_headers
#else
#ifdef eights
#import codes_eights
#else
#import codes_units
#endif
#endif
