// `await using` needs this symbol, which older browsers lack.
const symbols = Symbol as { asyncDispose?: symbol };
symbols.asyncDispose ??= Symbol.for("Symbol.asyncDispose");
export {};
