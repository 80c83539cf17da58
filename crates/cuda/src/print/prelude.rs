//! What printed kernels call: small device functions that stand before them, each only where it is used.

use super::{across, matrix, meetings};

/// A part of the prelude: the names by which it is asked for, and its text.
pub(super) struct Part {
    pub names: &'static [&'static str],
    pub text: &'static str,
}

/// The parts that a text needs, in the order of the table: those whose names it mentions, and those that these need.
pub(super) fn needed(text: &str) -> String {
    let all: Vec<&Part> = PARTS
        .iter()
        .chain(across::PARTS)
        .chain(meetings::PARTS)
        .chain(matrix::PARTS)
        .chain(matrix::GROUPS.iter())
        .collect();
    let mut is_needed = vec![false; all.len()];
    let mut unread: Vec<&str> = vec![text];
    while let Some(text) = unread.pop() {
        for (k, part) in all.iter().enumerate() {
            if !is_needed[k] && part.names.iter().any(|name| mentions(text, name)) {
                is_needed[k] = true;
                unread.push(part.text);
            }
        }
    }
    let parts = all.iter().zip(is_needed).filter(|(_, needed)| *needed);
    parts.map(|(part, _)| format!("{}\n", part.text.trim_start_matches('\n'))).collect()
}

/// Whether a text contains a name as a word.
pub(super) fn mentions(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_part)
            && !text[at + name.len()..].chars().next().is_some_and(is_part)
    })
}

macro_rules! parts {
    ($([$($name:literal),+] $text:literal)+) => {
        static PARTS: &[Part] = &[$(Part { names: &[$($name),+], text: $text }),+];
    };
}

parts! {
["after_earlier"] "
// Goes on when all earlier launches have ended; then the next one may begin, as far as it can without what this one writes. Not before:
// a launch waits for the one before it alone, and three in a row were seen to run at once.
__device__ __forceinline__ void after_earlier() {
  asm volatile(\"griddepcontrol.wait;\\n  griddepcontrol.launch_dependents;\" ::: \"memory\");
}
"
["to_odd"] "
// The nearest float, or of two the one with an odd last bit: rounding that once more is as rounding once.
__device__ __forceinline__ float to_odd(float x) { return x; }
__device__ __forceinline__ float to_odd(double x) {
  const float near = __double2float_rz(x);
  return (double)near == x || x != x ? near : __int_as_float(__float_as_int(near) | 1);
}
"
["Specials"] "
// Which bits of a narrow float are no numbers.
enum Specials { INFINITIES, ALL_ONES, NEGATIVE_ZERO, SCALE };
"
["decoded"] "
template <int EXPONENT, int MANTISSA, int BIAS, Specials SPECIALS>
__device__ __forceinline__ float decoded(unsigned bits) {
  constexpr unsigned TOP = (1u << EXPONENT) - 1, ONES = (1u << (EXPONENT + MANTISSA)) - 1, SIGN = SPECIALS == SCALE ? 0 : ONES + 1;
  const unsigned fraction = bits & ((1u << MANTISSA) - 1), exponent = (bits >> MANTISSA) & TOP;
  const float nan = __int_as_float(0x7fc00000);
  float x = exponent == 0 && SPECIALS != SCALE ? ldexpf((float)fraction, 1 - BIAS - MANTISSA)
                                               : ldexpf((float)(fraction | 1u << MANTISSA), (int)exponent - BIAS - MANTISSA);
  if (SPECIALS == INFINITIES && exponent == TOP) x = fraction == 0 ? __int_as_float(0x7f800000) : nan;
  if ((SPECIALS == ALL_ONES || SPECIALS == SCALE) && (bits & ONES) == ONES) x = nan;
  if (SPECIALS == NEGATIVE_ZERO && bits == SIGN) x = nan;
  return bits & SIGN ? -x : x;
}
"
["encoded"] "
template <int EXPONENT, int MANTISSA, int BIAS, Specials SPECIALS>
__device__ __forceinline__ unsigned char encoded(float x) {
  constexpr unsigned TOP = (1u << EXPONENT) - 1, ONES = (1u << (EXPONENT + MANTISSA)) - 1, SIGN = SPECIALS == SCALE ? 0 : ONES + 1;
  constexpr unsigned MOST = SPECIALS == INFINITIES ? (TOP << MANTISSA) - 1 : SPECIALS == NEGATIVE_ZERO ? ONES : ONES - 1;
  const unsigned sign = __float_as_int(x) < 0 ? SIGN : 0;
  const unsigned nan = SPECIALS == INFINITIES ? sign | TOP << MANTISSA | 1u << (MANTISSA > 0 ? MANTISSA - 1 : 0)
                     : SPECIALS == NEGATIVE_ZERO ? SIGN : sign | ONES;
  const unsigned large = SPECIALS == INFINITIES ? sign | TOP << MANTISSA : nan;
  if (x != x) return nan;
  const float a = fabsf(x);
  if (SPECIALS == SCALE) {
    if (x < 0.0f) return ONES;
    const int field = a == 0.0f ? 0 : ilogbf(a / 0.75f) + BIAS;
    return field > (int)MOST ? large : field < 0 ? 0 : field;
  }
  if (a == 0.0f) return SPECIALS == NEGATIVE_ZERO ? 0 : sign;
  if (a == __int_as_float(0x7f800000)) return large;
  const int exponent = max((__float_as_int(a) >> 23) - 127, 1 - BIAS);
  const unsigned rounded = (unsigned)rintf(ldexpf(a, MANTISSA - exponent));
  const unsigned normal = 1u << MANTISSA;
  const unsigned bits = rounded < normal ? rounded : ((unsigned)(exponent + BIAS) << MANTISSA) + (rounded - normal);
  if (bits == 0 && SPECIALS == NEGATIVE_ZERO) return 0;
  return bits > MOST ? large : sign | bits;
}
"
["Narrow", "narrow"] "
// The element that a value becomes in memory: the nearest, ties to even.
template <class T> struct Narrow {
  static constexpr bool PAIRS = false;
  template <class V> static __device__ __forceinline__ T of(V x) { return (T)x; }
};
template <class T, class V> __device__ __forceinline__ T narrow(V x) { return Narrow<T>::of(x); }
"
["f16"] "
struct f16 { unsigned short bits; };
__device__ __forceinline__ float widen(f16 x) { float y; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x.bits)); return y; }
template <> struct Narrow<f16> {
  static constexpr bool PAIRS = true;
  static __device__ __forceinline__ f16 of(float x) { f16 y; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y.bits) : \"f\"(x)); return y; }
  static __device__ __forceinline__ f16 of(double x) { return of(to_odd(x)); }
  static __device__ __forceinline__ unsigned pair(float a, float b) {
    unsigned y; asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(y) : \"f\"(b), \"f\"(a)); return y;
  }
};
"
["bf16"] "
struct bf16 { unsigned short bits; };
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }
template <> struct Narrow<bf16> {
  static constexpr bool PAIRS = true;
  static __device__ __forceinline__ bf16 of(float x) { bf16 y; asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(y.bits) : \"f\"(x)); return y; }
  static __device__ __forceinline__ bf16 of(double x) { return of(to_odd(x)); }
  static __device__ __forceinline__ unsigned pair(float a, float b) {
    unsigned y; asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(y) : \"f\"(b), \"f\"(a)); return y;
  }
};
"
["f8e4m3"] "
struct f8e4m3 { unsigned char bits; };
__device__ __forceinline__ float widen(f8e4m3 x) { return decoded<4, 3, 7, ALL_ONES>(x.bits); }
template <> struct Narrow<f8e4m3> {
  static constexpr bool PAIRS = false;
  template <class V> static __device__ __forceinline__ f8e4m3 of(V x) { return f8e4m3{encoded<4, 3, 7, ALL_ONES>(to_odd(x))}; }
};
"
["f8e4m3z"] "
struct f8e4m3z { unsigned char bits; };
__device__ __forceinline__ float widen(f8e4m3z x) { return decoded<4, 3, 8, NEGATIVE_ZERO>(x.bits); }
template <> struct Narrow<f8e4m3z> {
  static constexpr bool PAIRS = false;
  template <class V> static __device__ __forceinline__ f8e4m3z of(V x) { return f8e4m3z{encoded<4, 3, 8, NEGATIVE_ZERO>(to_odd(x))}; }
};
"
["f8e5m2"] "
struct f8e5m2 { unsigned char bits; };
__device__ __forceinline__ float widen(f8e5m2 x) { return decoded<5, 2, 15, INFINITIES>(x.bits); }
template <> struct Narrow<f8e5m2> {
  static constexpr bool PAIRS = false;
  template <class V> static __device__ __forceinline__ f8e5m2 of(V x) { return f8e5m2{encoded<5, 2, 15, INFINITIES>(to_odd(x))}; }
};
"
["f8e5m2z"] "
struct f8e5m2z { unsigned char bits; };
__device__ __forceinline__ float widen(f8e5m2z x) { return decoded<5, 2, 16, NEGATIVE_ZERO>(x.bits); }
template <> struct Narrow<f8e5m2z> {
  static constexpr bool PAIRS = false;
  template <class V> static __device__ __forceinline__ f8e5m2z of(V x) { return f8e5m2z{encoded<5, 2, 16, NEGATIVE_ZERO>(to_odd(x))}; }
};
"
["f8e8m0"] "
struct f8e8m0 { unsigned char bits; };
__device__ __forceinline__ float widen(f8e8m0 x) { return decoded<8, 0, 127, SCALE>(x.bits); }
template <> struct Narrow<f8e8m0> {
  static constexpr bool PAIRS = false;
  template <class V> static __device__ __forceinline__ f8e8m0 of(V x) { return f8e8m0{encoded<8, 0, 127, SCALE>(to_odd(x))}; }
};
"
["Pack"] "
// N elements that lie side by side.
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };
"
["load"] "
// N elements, read W at a time.
template <int N, int W = N, class T> __device__ __forceinline__ Pack<T, N> load(const T* from) {
  Pack<T, N> pack;
#pragma unroll
  for (int k = 0; k < N; k += W) *(Pack<T, W>*)(pack.at + k) = *(const Pack<T, W>*)(from + k);
  return pack;
}
"
["to_stay"] "
// What the cache of all processors does with lines: it keeps them longer than what is written.
__device__ __forceinline__ unsigned long long to_stay() {
  unsigned long long policy;
  asm(\"createpolicy.fractional.L2::evict_last.b64 %0, 1.0;\" : \"=l\"(policy));
  return policy;
}
"
["lasting"] "
// A tensor of which the shared cache keeps what is read longer than what is written, so that memory takes that sooner.
extern \"C\" __device__ void* __nv_associate_access_property(const void*, unsigned long long);
template <class T> __device__ __forceinline__ const T* lasting(const T* tensor) {
  return (const T*)__nv_associate_access_property(tensor, to_stay());
}
"
["load_to_stay"] "
// A pack of 16 bytes that is read again soon: all caches keep it.
template <int N, class T> __device__ __forceinline__ Pack<T, N> load_to_stay(const T* from) {
  Pack<T, N> pack;
  unsigned* const to = (unsigned*)pack.at;
  asm volatile(\"ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;\"
               : \"=r\"(to[0]), \"=r\"(to[1]), \"=r\"(to[2]), \"=r\"(to[3]) : \"l\"(__cvta_generic_to_global(from)), \"l\"(to_stay()));
  return pack;
}
"
["load_to_leave"] "
// The same for the last time.
template <int N, class T> __device__ __forceinline__ Pack<T, N> load_to_leave(const T* from) {
  Pack<T, N> pack;
  unsigned* const to = (unsigned*)pack.at;
  unsigned long long policy;
  asm(\"createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\" : \"=l\"(policy));
  asm volatile(\"ld.global.L1::evict_first.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;\"
               : \"=r\"(to[0]), \"=r\"(to[1]), \"=r\"(to[2]), \"=r\"(to[3]) : \"l\"(__cvta_generic_to_global(from)), \"l\"(policy));
  return pack;
}
"
["filled"] "
template <int N, class T> __device__ __forceinline__ Pack<T, N> filled(T with) {
  Pack<T, N> pack;
#pragma unroll
  for (int k = 0; k < N; ++k) pack.at[k] = with;
  return pack;
}
"
["packed"] "
template <class T, class V, int N> __device__ __forceinline__ Pack<T, N> packed(const V (&values)[N]) {
  Pack<T, N> pack;
  if constexpr (Narrow<T>::PAIRS && N % 2 == 0) {
#pragma unroll
    for (int k = 0; k < N; k += 2) ((unsigned*)pack.at)[k / 2] = Narrow<T>::pair(values[k], values[k + 1]);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) pack.at[k] = narrow<T>(values[k]);
  }
  return pack;
}
"
["widen_lane"] "
// One of many elements that lie side by side.
template <int N> __device__ __forceinline__ float widen_lane(const Pack<bf16, N>& pack, int lane) {
  const unsigned two = ((const unsigned*)pack.at)[lane / 2];
  return __uint_as_float(lane % 2 ? two & 0xffff0000u : two << 16);
}
"
["kept"] "
// A number that is read again and again: the compiler would keep what it follows from, and compute it every time.
__device__ __forceinline__ float kept(float x) { asm volatile(\"\" : \"+f\"(x)); return x; }
__device__ __forceinline__ int kept(int x) { asm volatile(\"\" : \"+r\"(x)); return x; }
__device__ __forceinline__ long long kept(long long x) { asm volatile(\"\" : \"+l\"(x)); return x; }
"
["nearest_i8", "whole_i8"] "
// The nearest integer, or what is left without the fraction; of what is outside of the type, its bounds; of NaN, 0.
__device__ __forceinline__ int nearest_i8(float x) { int y; asm(\"cvt.rni.sat.s8.f32 %0, %1;\" : \"=r\"(y) : \"f\"(x)); return y; }
__device__ __forceinline__ int whole_i8(float x) { int y; asm(\"cvt.rzi.sat.s8.f32 %0, %1;\" : \"=r\"(y) : \"f\"(x)); return y; }
"
["nearest_u8", "whole_u8"] "
// The nearest integer, or what is left without the fraction; of what is outside of the type, its bounds; of NaN, 0.
__device__ __forceinline__ int nearest_u8(float x) { int y; asm(\"cvt.rni.sat.u8.f32 %0, %1;\" : \"=r\"(y) : \"f\"(x)); return y; }
__device__ __forceinline__ int whole_u8(float x) { int y; asm(\"cvt.rzi.sat.u8.f32 %0, %1;\" : \"=r\"(y) : \"f\"(x)); return y; }
"
["nearest_i16", "whole_i16"] "
// The nearest integer, or what is left without the fraction; of what is outside of the type, its bounds; of NaN, 0.
__device__ __forceinline__ int nearest_i16(float x) { int y; asm(\"cvt.rni.sat.s16.f32 %0, %1;\" : \"=r\"(y) : \"f\"(x)); return y; }
__device__ __forceinline__ int whole_i16(float x) { int y; asm(\"cvt.rzi.sat.s16.f32 %0, %1;\" : \"=r\"(y) : \"f\"(x)); return y; }
"
["nearest_u16", "whole_u16"] "
// The nearest integer, or what is left without the fraction; of what is outside of the type, its bounds; of NaN, 0.
__device__ __forceinline__ int nearest_u16(float x) { int y; asm(\"cvt.rni.sat.u16.f32 %0, %1;\" : \"=r\"(y) : \"f\"(x)); return y; }
__device__ __forceinline__ int whole_u16(float x) { int y; asm(\"cvt.rzi.sat.u16.f32 %0, %1;\" : \"=r\"(y) : \"f\"(x)); return y; }
"
["store"] "
// N values, rounded to elements and written W at a time.
template <int N, int W = N, class T, class V> __device__ __forceinline__ void store(T* to, const V (&values)[N]) {
  const Pack<T, N> pack = packed<T>(values);
#pragma unroll
  for (int k = 0; k < N; k += W) *(Pack<T, W>*)(to + k) = *(const Pack<T, W>*)(pack.at + k);
}
"
["larger", "smaller"] "
// NaN where either is; +0 is larger than -0.
__device__ __forceinline__ float larger(float a, float b) { float y; asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b)); return y; }
__device__ __forceinline__ float smaller(float a, float b) { float y; asm(\"min.NaN.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b)); return y; }
__device__ __forceinline__ double larger(double a, double b) { return a != a ? a : b != b ? b : a == b ? (a == 0 ? a + b : a) : a > b ? a : b; }
__device__ __forceinline__ double smaller(double a, double b) { return -larger(-a, -b); }
template <class T> __device__ __forceinline__ T larger(T a, T b) { return a < b ? b : a; }
template <class T> __device__ __forceinline__ T smaller(T a, T b) { return b < a ? b : a; }
"
["is_nan"] "
template <class T> __device__ __forceinline__ bool is_nan(T x) { return x != x; }
"
["sign_of"] "
template <class T> __device__ __forceinline__ T sign_of(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x; }
"
["largest_bf16", "least_bf16"] "
// The largest and the least of some elements that lie side by side, NaN where one is: two at a time.
template <int N> __device__ __forceinline__ float largest_bf16(const Pack<bf16, N>& pack) {
  unsigned two = ((const unsigned*)pack.at)[0];
#pragma unroll
  for (int k = 1; k < N / 2; ++k) asm(\"max.NaN.bf16x2 %0, %0, %1;\" : \"+r\"(two) : \"r\"(((const unsigned*)pack.at)[k]));
  return larger(widen(bf16{(unsigned short)two}), widen(bf16{(unsigned short)(two >> 16)}));
}
template <int N> __device__ __forceinline__ float least_bf16(const Pack<bf16, N>& pack) {
  unsigned two = ((const unsigned*)pack.at)[0];
#pragma unroll
  for (int k = 1; k < N / 2; ++k) asm(\"min.NaN.bf16x2 %0, %0, %1;\" : \"+r\"(two) : \"r\"(((const unsigned*)pack.at)[k]));
  return smaller(widen(bf16{(unsigned short)two}), widen(bf16{(unsigned short)(two >> 16)}));
}
"
["largest_f16", "least_f16"] "
// The largest and the least of some elements that lie side by side, NaN where one is: two at a time.
template <int N> __device__ __forceinline__ float largest_f16(const Pack<f16, N>& pack) {
  unsigned two = ((const unsigned*)pack.at)[0];
#pragma unroll
  for (int k = 1; k < N / 2; ++k) asm(\"max.NaN.f16x2 %0, %0, %1;\" : \"+r\"(two) : \"r\"(((const unsigned*)pack.at)[k]));
  return larger(widen(f16{(unsigned short)two}), widen(f16{(unsigned short)(two >> 16)}));
}
template <int N> __device__ __forceinline__ float least_f16(const Pack<f16, N>& pack) {
  unsigned two = ((const unsigned*)pack.at)[0];
#pragma unroll
  for (int k = 1; k < N / 2; ++k) asm(\"min.NaN.f16x2 %0, %0, %1;\" : \"+r\"(two) : \"r\"(((const unsigned*)pack.at)[k]));
  return smaller(widen(f16{(unsigned short)two}), widen(f16{(unsigned short)(two >> 16)}));
}
"
["sigmoid"] "
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
"
["erf_of"] "
// The error function: 1 - 2^w, where w = log2(erfc |x|) is |x| times a polynomial.
__device__ __forceinline__ float erf_of(float x) {
  const float a = smaller(fabsf(x), 3.93f);
  float curve = -0.000059758066f;
  curve = fmaf(curve, a, 0.00055737485f), curve = fmaf(curve, a, -0.0018282053f);
  curve = fmaf(curve, a, -0.00026508112f), curve = fmaf(curve, a, 0.0278522f);
  curve = fmaf(curve, a, -0.14832157f), curve = fmaf(curve, a, -0.9184447f), curve = fmaf(curve, a, -1.627907f);
  // 2^w = 2^n (1 + rest), with n the nearest integer: 1.5 * 2^23 + 127 leaves it in the low bits as an exponent.
  const float shifted = fmaf(a, curve, 12583039.0f);
  const float r = fmaf(a, curve, 12583039.0f - shifted);
  float rest = 0.00015383745f;
  rest = fmaf(rest, r, 0.0013387408f), rest = fmaf(rest, r, 0.009618307f), rest = fmaf(rest, r, 0.055503674f);
  rest = fmaf(rest, r, 0.24022649f), rest = fmaf(rest, r, 0.6931472f) * r;
  const float power = __int_as_float(__float_as_int(shifted) << 23);
  return copysignf(fmaf(-power, rest, 1.0f - power), x);
}
"
["exp_near", "power_near"] "
// The exponential of what becomes a narrow float at once; of a difference, whose second number is the same for many.
__device__ __forceinline__ float power_near(float x) { float y; asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x)); return y; }
__device__ __forceinline__ float exp_near(float x) { return power_near(x * 1.4426950408889634f); }
__device__ __forceinline__ float exp_near(float a, float b) { return power_near(fmaf(a, 1.4426950408889634f, b * -1.4426950408889634f)); }
"
["erf_near"] "
// The error function of what becomes a narrow float at once, within 7e-7: 1 - 2^w, where w = log2(erfc |x|) is |x| times a polynomial.
__device__ __forceinline__ float erf_near(float x) {
  const float a = fabsf(x);
  float curve = fmaf(-0.0029441032f, a, 0.029589862f);
  curve = fmaf(curve, a, -0.14866543f), curve = fmaf(curve, a, -0.9185094f), curve = fmaf(curve, a, -1.627889f);
  // Both, and then a choice: a branch takes longer.
  float y = 1.0f - power_near(a * curve);
  asm(\"{ .reg .pred small; setp.lt.f32 small, %1, 0f3ca3d70a; selp.f32 %0, %2, %0, small; }\" : \"+f\"(y) : \"f\"(a), \"f\"(a * 1.1283792f));
  return copysignf(y, x);
}
"
["erf_plus_one_near"] "
// 1 and the error function of what becomes a narrow float at once: far below 0 it is as exact as elsewhere, for nothing cancels. The sign is
// asked of the bits: of the number, the compiler would ask what it is the difference of, and then subtract for itself.
__device__ __forceinline__ float erf_plus_one_near(float x) {
  const float a = fabsf(x);
  float curve = fmaf(-0.0029441032f, a, 0.029589862f);
  curve = fmaf(curve, a, -0.14866543f), curve = fmaf(curve, a, -0.9185094f), curve = fmaf(curve, a, -1.627889f);
  const float rest = power_near(a * curve);
  return __float_as_int(x) < 0 ? rest : 2.0f - rest;
}
"
["twice_normal_near"] "
// The same of a number times the root of 1/2, which is part of the coefficients: twice the normal distribution.
__device__ __forceinline__ float twice_normal_near(float x) {
  const float a = fabsf(x);
  float curve = fmaf(-0.00052044884f, a, 0.0073974655f);
  curve = fmaf(curve, a, -0.052561167f), curve = fmaf(curve, a, -0.4592547f), curve = fmaf(curve, a, -1.1510913f);
  const float rest = power_near(a * curve);
  return __float_as_int(x) < 0 ? rest : 2.0f - rest;
}
"
["gelu_near"] "
// A number times its normal distribution, where the result becomes a narrow float at once: the number itself or 0, less |x| times what lies
// beyond |x|. The largest number is taken for infinity, but not for that below 0, whose product is none.
__device__ __forceinline__ float gelu_near(float x) {
  const float a = larger(-x, smaller(x, 3.4028235e38f));
  float curve = fmaf(-0.00052044884f, a, 0.0073974655f);
  curve = fmaf(curve, a, -0.052561167f), curve = fmaf(curve, a, -0.4592547f), curve = fmaf(curve, a, -1.1510913f);
  return fmaf(-a, power_near(fmaf(a, curve, -1.0f)), larger(x, 0.0f));
}
"
["sigmoid_near"] "
__device__ __forceinline__ float sigmoid_near(float x) {
  float y; asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(1.0f + exp_near(-x))); return y;
}
"
["exp_deep"] "
// The same of numbers of any size, such as a mask that hides a whole row: those that have no logarithm's multiple are equal or far apart, so that any factor will do.
__device__ __forceinline__ float exp_by(float a, float b, float factor) { return power_near(fmaf(a, factor, b * -factor)); }
__device__ __forceinline__ float exp_deep(float a, float b) { return exp_by(a, b, fabsf(b) < 2e38f ? 1.4426950408889634f : 0.0625f); }
"
["base_of"] "
// What exponentials are taken from: the largest number so far, or any other where there is none.
__device__ __forceinline__ float base_of(float largest) { return largest == -__int_as_float(0x7f800000) ? 0.0f : largest; }
"
["ratio_near"] "
// A quotient of what becomes a narrow float at once, within two last places.
__device__ __forceinline__ float ratio_near(float a, float b) { float y; asm(\"div.full.f32 %0, %1, %2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b)); return y; }
"
["Divisor"] "
// A divisor of many numbers, by its inverse; scaled, where that would be no ordinary number.
struct Divisor { float scale, inverse; };
__device__ __forceinline__ Divisor divisor(float x) {
  const float scale = fabsf(x) < 1.2e-30f ? 18446744073709551616.0f : fabsf(x) > 1.2e30f ? 5.421010862427522e-20f : 1.0f;
  return {scale, 1.0f / (x * scale)};
}
__device__ __forceinline__ float divided(float a, Divisor by) { return a * by.scale * by.inverse; }
"
["times_divisor"] "
// A divisor of numbers that are multiplied first.
__device__ __forceinline__ Divisor times_divisor(float factor, Divisor by) { return {by.scale, by.inverse * factor}; }
"
["divisor_near", "inverse_near"] "
// The same of what becomes a narrow float at once.
__device__ __forceinline__ float inverse_near(float x) { float y; asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x)); return y; }
__device__ __forceinline__ Divisor divisor_near(float x) {
  const float scale = fabsf(x) < 1.2e-30f ? 18446744073709551616.0f : fabsf(x) > 1.2e30f ? 5.421010862427522e-20f : 1.0f;
  return {scale, inverse_near(x * scale)};
}
"
["inverse_root_near"] "
// The inverse of a root, of what becomes a narrow float at once.
__device__ __forceinline__ float inverse_root_near(float x) { float y; asm(\"rsqrt.approx.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x)); return y; }
"
["exp2_by_f64"] "
__device__ __forceinline__ float exp2_by_f64(float x) { return (float)exp2((double)x); }
"
["sin_by_f64"] "
__device__ __forceinline__ float sin_by_f64(float x) { return (float)sin((double)x); }
"
["cos_by_f64"] "
__device__ __forceinline__ float cos_by_f64(float x) { return (float)cos((double)x); }
"
["tan_by_f64"] "
__device__ __forceinline__ float tan_by_f64(float x) { return (float)tan((double)x); }
"
["sinh_by_f64"] "
__device__ __forceinline__ float sinh_by_f64(float x) { return (float)sinh((double)x); }
"
["acosh_by_f64"] "
__device__ __forceinline__ float acosh_by_f64(float x) { return (float)acosh((double)x); }
"
["wrapped_sum"] "
template <class T> __device__ __forceinline__ T wrapped_sum(T a, T b) { return (T)((unsigned long long)a + (unsigned long long)b); }
"
["wrapped_difference"] "
template <class T> __device__ __forceinline__ T wrapped_difference(T a, T b) { return (T)((unsigned long long)a - (unsigned long long)b); }
"
["wrapped_product"] "
template <class T> __device__ __forceinline__ T wrapped_product(T a, T b) { return (T)((unsigned long long)a * (unsigned long long)b); }
"
["negated"] "
template <class T> __device__ __forceinline__ T negated(T x) { return (T)(0ull - (unsigned long long)x); }
"
["magnitude"] "
template <class T> __device__ __forceinline__ T magnitude(T x) { return x < T(0) ? negated(x) : x; }
"
["quotient"] "
// Towards zero; 0 where the divisor is.
template <class T> __device__ __forceinline__ T quotient(T a, T b) { return b == T(0) ? T(0) : T(-1) < T(0) && b == T(-1) ? negated(a) : a / b; }
"
["remainder_of"] "
template <class T> __device__ __forceinline__ T remainder_of(T a, T b) { return b == T(0) || (T(-1) < T(0) && b == T(-1)) ? T(0) : a % b; }
"
["floor_mod"] "
// The remainder with the divisor's sign.
__device__ __forceinline__ float floor_mod(float a, float b) { const float r = fmodf(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
__device__ __forceinline__ double floor_mod(double a, double b) { const double r = fmod(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
template <class T> __device__ __forceinline__ T floor_mod(T a, T b) { const T r = remainder_of(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
"
["power"] "
template <class T> __device__ T power(T a, T b) {
  if (b < T(0)) return a == T(1) ? T(1) : a == T(-1) ? (b % T(2) == T(0) ? T(1) : T(-1)) : T(0);
  T result = 1;
  for (; b > T(0); b >>= 1, a = wrapped_product(a, a)) if (b & T(1)) result = wrapped_product(result, a);
  return result;
}
"
["shifted_left"] "
template <class T> __device__ __forceinline__ T shifted_left(T a, T b) { return (unsigned long long)b < 64 ? (T)((unsigned long long)a << b) : T(0); }
"
["shifted_right"] "
template <class T> __device__ __forceinline__ T shifted_right(T a, T b) { return (unsigned long long)b < 64 ? (T)((long long)a >> b) : T(0); }
__device__ __forceinline__ unsigned long long shifted_right(unsigned long long a, unsigned long long b) { return b < 64 ? a >> b : 0; }
"
["whole"] "
// The low bits of a float without its fraction; those of 2^127 and more are ones, those of NaN zeros.
__device__ __forceinline__ long long whole(double x) {
  if (fabs(x) < 9223372036854775808.0) return (long long)x;
  const long long bits = __double_as_longlong(x);
  const int shift = (int)(bits >> 52 & 0x7ff) - 1023 - 52;
  if (shift >= 75) return x > 0 ? -1 : 0;
  const long long magnitude = shift < 64 ? (bits & 0xfffffffffffffll | 1ll << 52) << shift : 0;
  return x < 0 ? -magnitude : magnitude;
}
__device__ __forceinline__ long long whole(float x) { return fabsf(x) < 2147483648.0f ? (long long)(int)x : whole((double)x); }
"
["floor_div"] "
template <class T> __device__ __forceinline__ T floor_div(T a, T b) { const T q = a / b; return q * b > a ? q - 1 : q; }
"
["floor_rest"] "
template <class T> __device__ __forceinline__ T floor_rest(T a, T b) { const T r = a % b; return r < 0 ? r + b : r; }
"
["Fault"] "
struct Fault { int site; long long value; };
"
["checked"] "
// An index that was read; one outside of its axis is reported, and 0 taken instead.
__device__ __forceinline__ Index checked(long long index, Index size, int site, Fault* fault) {
  if (index >= 0 && index < size) return (Index)index;
  if (atomicCAS(&fault->site, 0, site) == 0) fault->value = index;
  return 0;
}
"
["Keys", "keys_of"] "
// The keys of the rounds of Philox-4x32-10.
struct Keys { unsigned at[10][2]; };
__device__ __forceinline__ Keys keys_of(unsigned long long seed) {
  Keys keys;
#pragma unroll
  for (unsigned round = 0; round < 10; ++round) {
    keys.at[round][0] = (unsigned)seed + round * 0x9e3779b9u, keys.at[round][1] = (unsigned)(seed >> 32) + round * 0xbb67ae85u;
  }
  return keys;
}
"
["philox", "random_words"] "
// The four words of a block.
struct Words { unsigned at[4]; };
__device__ __forceinline__ Words philox(const Keys& keys, unsigned long long stream, unsigned long long block) {
  unsigned c0 = (unsigned)block, c1 = (unsigned)(block >> 32), c2 = (unsigned)stream, c3 = (unsigned)(stream >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long x = 0xd2511f53ull * c0, y = 0xcd9e8d57ull * c2;
    c0 = (unsigned)(y >> 32) ^ c1 ^ keys.at[round][0], c1 = (unsigned)y;
    c2 = (unsigned)(x >> 32) ^ c3 ^ keys.at[round][1], c3 = (unsigned)x;
  }
  return {{c0, c1, c2, c3}};
}
// N words from an index that is a multiple of four on.
template <int N> __device__ __forceinline__ void random_words(unsigned (&words)[N], const Keys& keys, unsigned long long stream, unsigned long long index) {
#pragma unroll
  for (int k = 0; k < N; k += 4) {
    const Words four = philox(keys, stream, (index + k) / 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) words[k + j] = four.at[j];
  }
}
"
["random_word"] "
__device__ __forceinline__ unsigned random_word(const Keys& keys, unsigned long long stream, unsigned long long index) {
  const Words four = philox(keys, stream, index / 4);
  const unsigned low = index & 1 ? four.at[1] : four.at[0], high = index & 1 ? four.at[3] : four.at[2];
  return index & 2 ? high : low;
}
"
["Sum"] "
struct Sum {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
  __device__ __forceinline__ double operator()(double a, double b) const { return a + b; }
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return wrapped_sum(a, b); }
};
"
["Prod"] "
struct Prod {
  __device__ __forceinline__ float operator()(float a, float b) const { return a * b; }
  __device__ __forceinline__ double operator()(double a, double b) const { return a * b; }
  template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return wrapped_product(a, b); }
};
"
["Max"] "
struct Max { template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return larger(a, b); } };
"
["Min"] "
struct Min { template <class T> __device__ __forceinline__ T operator()(T a, T b) const { return smaller(a, b); } };
"
["shuffled"] "
template <class T> __device__ __forceinline__ T shuffled(T x, int distance) { return __shfl_xor_sync(0xffffffffu, x, distance); }
__device__ __forceinline__ bool shuffled(bool x, int distance) { return __shfl_xor_sync(0xffffffffu, (int)x, distance) != 0; }
"
["Best", "Position"] "
// The best value so far and where it stands; nowhere is -1. NaN is better than every number.
template <class T> struct Best { T value; long long at; };
template <class T> __device__ __forceinline__ Best<T> shuffled(Best<T> x, int distance) { return {shuffled(x.value, distance), shuffled(x.at, distance)}; }
template <bool LARGEST, bool LAST> struct Position {
  template <class T> __device__ __forceinline__ Best<T> operator()(Best<T> a, Best<T> b) const {
    if (a.at < 0) return b;
    if (b.at < 0) return a;
    const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    if (a_is_nan != b_is_nan) return a_is_nan ? a : b;
    if (a_is_nan || a.value == b.value) return (a.at < b.at) != LAST ? a : b;
    return (a.value > b.value) == LARGEST ? a : b;
  }
};
"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_with_what_they_need_and_in_order() {
        let text = needed("const f8e4m3* x0; widen(x0[1]);");
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is missing"));
        assert!(place("struct Narrow") < place("float decoded(") || place("float decoded(") < place("float widen("));
        assert!(place("float to_odd(") < place("float widen(f8e4m3") && !text.contains("bf16"));
        assert!(!text.contains("philox") && needed("int wideness;").is_empty());
    }
}
