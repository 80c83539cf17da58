//! Small device functions by which threads meet: those of a warp, of a block, of the blocks of a cluster.

use super::prelude::Part;

macro_rules! parts {
    ($([$($name:literal),+] $text:literal)+) => {
        /// The parts of the prelude that are about meetings.
        pub(super) static PARTS: &[Part] = &[$(Part { names: &[$($name),+], text: $text }),+];
    };
}

parts! {
["arrive_in_cluster", "wait_for_cluster"] "
// All threads of a cluster meet: none goes on from the second before all have come to the first.
__device__ __forceinline__ void arrive_in_cluster() { asm volatile(\"barrier.cluster.arrive.release;\" ::: \"memory\"); }
__device__ __forceinline__ void wait_for_cluster() { asm volatile(\"barrier.cluster.wait.acquire;\" ::: \"memory\"); }
"
["put"] "
// Writes a value to the same place of the shared memory of a block of the cluster.
template <class T> __device__ __forceinline__ void put(T* to, T value, unsigned block) {
  T* there;
  asm(\"mapa.u64 %0, %1, %2;\" : \"=l\"(there) : \"l\"(to), \"r\"(block));
  *there = value;
}
"
["from_block"] "
// Reads a value from the same place of the shared memory of a block of the cluster.
template <class T> __device__ __forceinline__ T from_block(const T* from, unsigned block) {
  const T* there;
  asm(\"mapa.u64 %0, %1, %2;\" : \"=l\"(there) : \"l\"(from), \"r\"(block));
  return *there;
}
"
["leave_columns", "fold_columns"] "
// Leaves what a thread has kept of columns in shared memory, where the same thread of another block of the cluster finds it and folds both.
template <int BLOCK, int T, int N> __device__ __forceinline__ void leave_columns(Pack<float, 4>* to, const float (&columns)[T][N]) {
#pragma unroll
  for (int k = 0; k < T * N; k += 4) {
    const float* const from = columns[k / N] + k % N;
    to[k / 4 * BLOCK] = {{from[0], from[1], from[2], from[3]}};
  }
}
template <int BLOCK, int T, int N, class F>
__device__ __forceinline__ void fold_columns(float (&columns)[T][N], const Pack<float, 4>* at, unsigned block, F fold) {
  const Pack<float, 4>* there;
  asm(\"mapa.u64 %0, %1, %2;\" : \"=l\"(there) : \"l\"(at), \"r\"(block));
#pragma unroll
  for (int k = 0; k < T * N; k += 4) {
    const Pack<float, 4> other = there[k / 4 * BLOCK];
#pragma unroll
    for (int l = 0; l < 4; ++l) columns[k / N][k % N + l] = fold(columns[k / N][k % N + l], other.at[l]);
  }
}
"
["across_lanes"] "
// The fold of the values of lanes that lie a multiple of N apart, in every one of them.
template <int N, class F, class T> __device__ __forceinline__ T across_lanes(T x, F fold) {
#pragma unroll
  for (int distance = N; distance < 32; distance *= 2) x = fold(x, shuffled(x, distance));
  return x;
}
"
["in_lanes"] "
// The fold of the values of N neighbouring lanes, in every one of them.
template <int N, class F, class T> __device__ __forceinline__ T in_lanes(T x, F fold) {
#pragma unroll
  for (int distance = N / 2; distance > 0; distance /= 2) x = fold(x, shuffled(x, distance));
  return x;
}
"
["in_second_lanes"] "
// The same of N lanes that lie two apart.
template <int N, class F, class T> __device__ __forceinline__ T in_second_lanes(T x, F fold) {
#pragma unroll
  for (int distance = N; distance > 1; distance /= 2) x = fold(x, shuffled(x, distance));
  return x;
}
"
["two_in_lanes"] "
// The folds of two values of all lanes: the lower half of a warp knows that of the first, the upper half that of the second.
template <class F, class T> __device__ __forceinline__ T two_in_lanes(T a, T b, F fold) {
  const bool is_upper = threadIdx.x & 16;
  return in_lanes<16>(fold(is_upper ? b : a, shuffled(is_upper ? a : b, 16)), fold);
}
"
["two_of_warps"] "
// The folds of what N warps have found of two values, those of the first before those of the second.
template <int N, class F, class T> __device__ __forceinline__ void two_of_warps(T& a, T& b, const T (&parts)[2 * N], F fold) {
  const T own = in_lanes<N>(parts[threadIdx.x % (2 * N)], fold), other = shuffled(own, N);
  const bool is_second = threadIdx.x & N;
  a = is_second ? other : own, b = is_second ? own : other;
}
"
["of_warps"] "
// The fold of what N warps have found.
template <int N, class F, class T> __device__ __forceinline__ T of_warps(const T (&parts)[N], F fold) {
  constexpr int LANES = N < 32 ? N : 32;
  T x = parts[threadIdx.x % LANES];
#pragma unroll
  for (int k = LANES; k < N; k += LANES) x = fold(x, parts[k + threadIdx.x % LANES]);
  return in_lanes<LANES>(x, fold);
}
"
}
