// KV cache: keys and values by index, in Nums: f32, or with f16_kv two f16 per word. Needs nums.
#ifdef f16_kv
#import half

#ifdef vec4
alias Kept = vec2<u32>;

fn halves(words: vec2<u32>) -> Num {
    return vec4(f16_low(words.x), f16_high(words.x), f16_low(words.y), f16_high(words.y));
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
    return f16_low(k[i >> 1u] >> ((i & 1u) * 16u));
}

fn kept_value(i: u32) -> Num {
    return f16_low(v[i >> 1u] >> ((i & 1u) * 16u));
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
