// A score with its soft cap c, c * tanh(score / c); the score itself if there is none (0). Needs Params.
#import math_tanh

fn capped(score: f32) -> f32 {
    if (params.soft_cap == 0.0) {
        return score;
    }
    return params.soft_cap * tanh_f32(score / params.soft_cap);
}
