// The sums of a matvec_codes_*, and their put. Part of its main.
#ifdef headers
#import codes_headers
#else
#import codes_units
#endif
