// Keys and values by index, in Nums: f32, or with half_kv two f16 per word. Needs nums.
#ifdef half_kv
#import half

#ifdef vec4
alias Kept = vec2<u32>;

fn halves(words: vec2<u32>) -> Num {
    return vec4(half_low(words.x), half_high(words.x), half_low(words.y), half_high(words.y));
}

fn kept_key(i: u32) -> Num {
    return halves(k[i]);
}

fn kept_value(i: u32) -> Num {
    return halves(v[i]);
}
#else
alias Kept = u32;

fn kept_key(i: u32) -> Num {
    return half_low(k[i >> 1u] >> ((i & 1u) * 16u));
}

fn kept_value(i: u32) -> Num {
    return half_low(v[i >> 1u] >> ((i & 1u) * 16u));
}
#endif
#else
alias Kept = Num;

fn kept_key(i: u32) -> Num {
    return k[i];
}

fn kept_value(i: u32) -> Num {
    return v[i];
}
#endif
