// `using` and `await using` need these symbols, which older browsers lack.
const symbols = Symbol as { asyncDispose?: symbol; dispose?: symbol };
symbols.asyncDispose ??= Symbol.for("Symbol.asyncDispose");
symbols.dispose ??= Symbol.for("Symbol.dispose");
export {};
