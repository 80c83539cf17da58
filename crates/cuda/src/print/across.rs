//! What printed kernels call where packs do not begin as rows do.

use super::prelude::Part;

macro_rules! parts {
    ($([$($name:literal),+] $text:literal)+) => {
        pub(super) static PARTS: &[Part] = &[$(Part { names: &[$($name),+], text: $text }),+];
    };
}

parts! {
["within"] "
// A place in a row, or in the next one, by the place in it.
__device__ __forceinline__ Index within(Index place, Index length) { return place < length ? place : place - length; }
"
["Shift", "by_shift"] "
// A number that the compiler knows, and what is done with how far lines begin before packs: all rows of a warp have the same, so that nothing is chosen element
// by element.
template <int N> struct Shift { static constexpr int BY = N; };
template <class F> __device__ __forceinline__ void by_shift(int behind, F act) {
  switch (behind % 4) {
    case 0: act(Shift<0>()); break;
    case 1: act(Shift<1>()); break;
    case 2: act(Shift<2>()); break;
    default: act(Shift<3>());
  }
}
"
["forget"] "
// Leaves narrow elements as they are, and the compiler without knowing it: it would widen what is the same for all rows once, and has no place for that.
template <class T, int N> __device__ __forceinline__ void forget(Pack<T, N>& pack) {
#pragma unroll
  for (int k = 0; k < (int)sizeof(pack) / 4; ++k) asm volatile(\"\" : \"+r\"(((unsigned*)pack.at)[k]));
}
"
["load_across"] "
// N elements, 16 bytes, of which the first is so many behind the beginning of a line, or of half of one where elements are narrow. What holds one element of
// a tensor can be read whole.
template <int N, int BY, class T> __device__ __forceinline__ Pack<T, N> load_across(const T* from, Shift<BY>) {
  static_assert(sizeof(T) * N == 16 && (sizeof(T) == 2 || sizeof(T) == 4), \"a pack is a line\");
  constexpr int WORDS = sizeof(T), BEHIND = BY * sizeof(T) / 4, PIECES = 4 / WORDS + (BY > 0);
  const Pack<unsigned, WORDS>* const pieces = (const Pack<unsigned, WORDS>*)(from - BY);
  alignas(16) unsigned words[8] = {};
#pragma unroll
  for (int k = 0; k < PIECES; ++k) *(Pack<unsigned, WORDS>*)(words + WORDS * k) = pieces[k];
  Pack<T, N> pack;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const unsigned low = words[k + BEHIND], high = words[k + BEHIND + 1 < 8 ? k + BEHIND + 1 : 7];
    ((unsigned*)pack.at)[k] = sizeof(T) == 2 && BY % 2 ? __funnelshift_r(low, high, 16) : low;
  }
  return pack;
}
// The same where the compiler does not know by how much: of narrow elements, all is read that may be wanted, and words are chosen.
template <int N, class T> __device__ __forceinline__ Pack<T, N> load_across(const T* from, int behind) {
  Pack<T, N> pack;
  if constexpr (sizeof(T) == 4) {
    by_shift(behind, [&](auto shift) { pack = load_across<N>(from, shift); });
  } else {
    const int by = behind % 4;
    const Pack<unsigned, 2>* const pieces = (const Pack<unsigned, 2>*)(from - by);
    const Pack<unsigned, 2> first = pieces[0], second = pieces[1], third = pieces[by > 0 ? 2 : 1];
    const unsigned words[6] = {first.at[0], first.at[1], second.at[0], second.at[1], third.at[0], third.at[1]};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const unsigned low = by < 2 ? words[k] : words[k + 1], high = by < 2 ? words[k + 1] : words[k + 2];
      ((unsigned*)pack.at)[k] = __funnelshift_r(low, high, 16 * (by % 2));
    }
  }
  return pack;
}
"
}
