//! What products of matrices call: copies into shared memory that nobody waits for, and the units that multiply.

use std::sync::LazyLock;

use super::prelude::Part;

/// Columns that a group of warps can multiply at once, in the sizes that are used.
const GROUP_COLUMNS: [usize; 3] = [64, 128, 256];

/// Products by groups of four warps: a part for every type and number of columns.
pub(super) static GROUPS: LazyLock<Vec<Part>> = LazyLock::new(|| {
    let mut parts = Vec::new();
    for ty in ["bf16", "f16"] {
        for columns in GROUP_COLUMNS {
            let name: &'static str = Box::leak(format!("multiply_group_{ty}_{columns}").into_boxed_str());
            let text: &'static str = Box::leak(group_text(name, ty, columns).into_boxed_str());
            let names: &'static [&'static str] = Box::leak(Box::new([name]));
            parts.push(Part { names, text });
            let name: &'static str = Box::leak(format!("multiply_scores_{ty}_{columns}").into_boxed_str());
            let text: &'static str = Box::leak(scores_text(name, ty, columns).into_boxed_str());
            let names: &'static [&'static str] = Box::leak(Box::new([name]));
            parts.push(Part { names, text });
        }
    }
    parts
});

/// The places of sums in an instruction, and the sums as its operands.
fn sum_operands(columns: usize) -> (String, String) {
    let count = columns / 2;
    let places: Vec<String> = (0..count).map(|k| format!("%{k}")).collect();
    let sums: Vec<String> = (0..count).map(|k| format!("\"+f\"(sums[0][{}][{}])", k / 4, k % 4)).collect();
    let lines = |list: &[String], per: usize, between: &str| -> String {
        let rows: Vec<String> = list.chunks(per).map(|chunk| chunk.join(", ")).collect();
        rows.join(&format!(",{between}"))
    };
    (lines(&places, 32, " \"\n        \""), lines(&sums, 8, "\n          "))
}

/// Four warps add the product of rounded scores, which they have as sums, and a tile in shared memory to their sums.
fn scores_text(name: &str, ty: &str, columns: usize) -> String {
    let count = columns / 2;
    let (operands, outputs) = sum_operands(columns);
    let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(|k| count + k);
    format!(
        "// Rounded scores of 64 rows, which four warps have as sums, times a tile of {columns} columns in shared memory.
template <bool ALONG, int LINES, int K> __device__ __forceinline__ void {name}(float (&sums)[1][{}][4], const float (&scores)[1][K][4], unsigned b) {{
  unsigned x[K / 2][4];
#pragma unroll
  for (int k = 0; k < K; ++k) {{
    x[k / 2][k % 2 * 2] = Narrow<{ty}>::pair(scores[0][k][0], scores[0][k][1]);
    x[k / 2][k % 2 * 2 + 1] = Narrow<{ty}>::pair(scores[0][k][2], scores[0][k][3]);
  }}
  begin_group();
#pragma unroll
  for (int k = 0; k < K / 2; ++k) {{
    const unsigned y = ALONG ? b + k / 4 * (LINES * 128) + k % 4 * 32 : b + k * 2048;
    asm volatile(\"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{ty}.{ty} {{{operands}}}, {{%{a}, %{b}, %{c}, %{d}}}, %{e}, 1, 1, 1, %{f};\"
        : {outputs}
        : \"r\"(x[k][0]), \"r\"(x[k][1]), \"r\"(x[k][2]), \"r\"(x[k][3]), \"l\"(described(y, ALONG ? 16 : LINES * 128)), \"n\"(ALONG ? 0 : 1) : \"memory\");
  }}
}}
",
        columns / 8
    )
}

/// Four warps add the product of 64 rows and some columns, `DEPTH` steps, to their sums.
fn group_text(name: &str, ty: &str, columns: usize) -> String {
    let count = columns / 2;
    let (operands, outputs) = sum_operands(columns);
    format!(
        "// 64 rows and {columns} columns by four warps, from shared memory; where lines lie across the sum, steps are lines.
template <int DEPTH, bool A_ALONG, int A_LINES, bool B_ALONG, int B_LINES>
__device__ __forceinline__ void {name}(float (&sums)[1][{}][4], unsigned a, int row, unsigned b, int column) {{
#pragma unroll
  for (int step = 0; step < DEPTH; step += 16) {{
    const unsigned x = A_ALONG ? a + step / 64 * (A_LINES * 128) + row * 128 + step % 64 * 2 : a + row / 64 * (A_LINES * 128) + step * 128;
    const unsigned y = B_ALONG ? b + step / 64 * (B_LINES * 128) + column * 128 + step % 64 * 2 : b + column / 64 * (B_LINES * 128) + step * 128;
    asm volatile(\"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{ty}.{ty} {{{operands}}}, %{}, %{}, 1, 1, 1, %{}, %{};\"
        : {outputs}
        : \"l\"(described(x, A_ALONG ? 16 : A_LINES * 128)), \"l\"(described(y, B_ALONG ? 16 : B_LINES * 128)), \"n\"(A_ALONG ? 0 : 1), \"n\"(B_ALONG ? 0 : 1) : \"memory\");
  }}
}}
",
        columns / 8,
        count,
        count + 1,
        count + 2,
        count + 3,
    )
}

macro_rules! parts {
    ($([$($name:literal),+] $text:literal)+) => {
        /// The parts of the prelude that are about matrices.
        pub(super) static PARTS: &[Part] = &[$(Part { names: &[$($name),+], text: $text }),+];
    };
}

parts! {
["shared_address"] "
__device__ __forceinline__ unsigned shared_address(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
"
["copy_async"] "
// So many bytes into shared memory, which nobody waits for yet; zeros where nothing is there.
template <int BYTES> __device__ __forceinline__ void copy_async(unsigned to, const void* from, bool is_there) {
  const int there = is_there ? BYTES : 0;
  const size_t at = __cvta_generic_to_global(from);
  if constexpr (BYTES == 16) asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" :: \"r\"(to), \"l\"(at), \"r\"(there) : \"memory\");
  else asm volatile(\"cp.async.ca.shared.global [%0], [%1], %2, %3;\" :: \"r\"(to), \"l\"(at), \"n\"(BYTES), \"r\"(there) : \"memory\");
}
"
["fetch_pack"] "
// A pack into shared memory, which nobody waits for yet.
template <class P> __device__ __forceinline__ void fetch_pack(P* to, const void* from) {
  constexpr int BYTES = sizeof(P) < 16 ? sizeof(P) : 16;
#pragma unroll
  for (int at = 0; at < sizeof(P); at += BYTES) copy_async<BYTES>(shared_address(to) + at, (const char*)from + at, true);
}
"
["fetch_last"] "
// A pack into shared memory, which nobody waits for yet, and which the shared cache keeps longer than what is written.
template <class P> __device__ __forceinline__ void fetch_last(P* to, const void* from) {
  if constexpr (sizeof(P) < 16) return fetch_pack(to, from);
#pragma unroll
  for (int at = 0; at < sizeof(P); at += 16)
    asm volatile(\"cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;\"
                 :: \"r\"(shared_address(to) + at), \"l\"(__cvta_generic_to_global((const char*)from + at)), \"l\"(to_stay()) : \"memory\");
}
"
["begin_arrivals"] "
// Places of shared memory where bytes are awaited, before anybody waits.
template <int N> __device__ __forceinline__ void begin_arrivals(unsigned long long* at) {
#pragma unroll
  for (int k = 0; k < N; ++k) asm volatile(\"mbarrier.init.shared.b64 [%0], 1;\" :: \"r\"(shared_address(at + k)) : \"memory\");
  asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");
}
"
["expect_bytes"] "
// So many bytes will arrive.
__device__ __forceinline__ void expect_bytes(unsigned long long* at, int bytes) {
  asm volatile(\"mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\" :: \"r\"(shared_address(at)), \"r\"(bytes) : \"memory\");
}
"
["bring"] "
// Brings bytes into shared memory, by the engine for copies, which tells there when they have arrived.
__device__ __forceinline__ void bring(void* to, const void* from, int bytes, unsigned long long* at) {
  asm volatile(\"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\"
               :: \"r\"(shared_address(to)), \"l\"(__cvta_generic_to_global(from)), \"r\"(bytes), \"r\"(shared_address(at)) : \"memory\");
}
"
["bring_last"] "
// The same of what the shared cache keeps longer than what is written.
__device__ __forceinline__ void bring_last(void* to, const void* from, int bytes, unsigned long long* at) {
  asm volatile(\"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;\"
               :: \"r\"(shared_address(to)), \"l\"(__cvta_generic_to_global(from)), \"r\"(bytes), \"r\"(shared_address(at)), \"l\"(to_stay()) : \"memory\");
}
"
["wait_for_bytes"] "
// Waits for what is expected there, for the first time in phase 0, then in turns.
__device__ __forceinline__ void wait_for_bytes(unsigned long long* at, int phase) {
  int is_there;
  do {
    asm volatile(\"{ .reg .pred there; mbarrier.try_wait.parity.shared.b64 there, [%1], %2; selp.s32 %0, 1, 0, there; }\" : \"=r\"(is_there) : \"r\"(shared_address(at)), \"r\"(phase) : \"memory\");
  } while (!is_there);
}
"
["TileMap"] "
// A matrix as the engine for copies sees it.
struct alignas(64) TileMap { unsigned long long at[16]; };
"
["bring_tile"] "
// Brings lines of a matrix into shared memory, from a place in a line, a line and a matrix on; zeros where nothing is there.
__device__ __forceinline__ void bring_tile(unsigned to, const TileMap* from, int x, int y, int z, unsigned long long* at) {
  asm volatile(\"cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];\"
               :: \"r\"(to), \"l\"(from), \"r\"(x), \"r\"(y), \"r\"(z), \"r\"(shared_address(at)) : \"memory\");
}
"
["bring_tile_to_all"] "
// The same to the same place of all blocks of a cluster, and each is told.
template <int BLOCKS> __device__ __forceinline__ void bring_tile_to_all(unsigned to, const TileMap* from, int x, int y, int z, unsigned long long* at) {
  asm volatile(\"cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;\"
               :: \"r\"(to), \"l\"(from), \"r\"(x), \"r\"(y), \"r\"(z), \"r\"(shared_address(at)), \"h\"((unsigned short)((1 << BLOCKS) - 1)) : \"memory\");
}
"
["rank_in_cluster"] "
__device__ __forceinline__ int rank_in_cluster() { int rank; asm(\"mov.u32 %0, %%cluster_ctarank;\" : \"=r\"(rank)); return rank; }
"
["begin_relay"] "
// Places where stages are awaited: filled by bytes, and emptied by all groups of a cluster, before anybody waits.
template <int STAGES, int READERS> __device__ __forceinline__ void begin_relay(unsigned long long* filled, unsigned long long* emptied) {
#pragma unroll
  for (int k = 0; k < STAGES; ++k) {
    asm volatile(\"mbarrier.init.shared.b64 [%0], 1;\" :: \"r\"(shared_address(filled + k)) : \"memory\");
    asm volatile(\"mbarrier.init.shared.b64 [%0], %1;\" :: \"r\"(shared_address(emptied + k)), \"n\"(READERS) : \"memory\");
  }
  asm volatile(\"fence.mbarrier_init.release.cluster;\\n  fence.proxy.async.shared::cta;\" ::: \"memory\");
}
"
["await_turn", "give_turn"] "
// One of two groups of four warps waits until the other one has seen the stage before its own first one. Without that it might take for its own
// what fills a stage two rounds before.
__device__ __forceinline__ void await_turn(int group) { asm volatile(\"bar.sync %0, 256;\" :: \"r\"(group + 1) : \"memory\"); }
__device__ __forceinline__ void give_turn(int group) { asm volatile(\"bar.arrive %0, 256;\" :: \"r\"(group + 1) : \"memory\"); }
"
["leave_registers", "take_registers"] "
// Three groups of four warps have 168 registers a thread; of those that one leaves, the others take 64 more each.
__device__ __forceinline__ void leave_registers() { asm volatile(\"setmaxnreg.dec.sync.aligned.u32 40;\"); }
__device__ __forceinline__ void take_registers() { asm volatile(\"setmaxnreg.inc.sync.aligned.u32 232;\"); }
"
["let_go"] "
// A group of four warps tells all blocks of a cluster that it has read a stage, for so many groups.
template <int BLOCKS> __device__ __forceinline__ void let_go(unsigned long long* at, int groups) {
  if (threadIdx.x % 128 < BLOCKS)
    asm volatile(\"{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there], %2; }\"
                 :: \"r\"(shared_address(at)), \"r\"(threadIdx.x % 128), \"r\"(groups) : \"memory\");
}
"
["slots_of"] "
// How many stages pass by until so many tiles are done, every second of them BEHIND the one before, and the next ones a PERIOD later.
template <int ROUND, int PERIOD, int BEHIND> __device__ __forceinline__ int slots_of(int tiles) {
  return (tiles - 1) / 2 * PERIOD + ROUND + (tiles % 2 ? 0 : BEHIND);
}
"
["word_of"] "
template <class T> __device__ __forceinline__ unsigned word_of(const float (&values)[2]) { return Narrow<T>::pair(values[0], values[1]); }
"
["commit_copies"] "
__device__ __forceinline__ void commit_copies() { asm volatile(\"cp.async.commit_group;\" ::: \"memory\"); }
"
["wait_for_copies"] "
// Waits until no more than so many groups of this thread's copies are on their way.
template <int LEFT> __device__ __forceinline__ void wait_for_copies() { asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(LEFT) : \"memory\"); }
"
["swizzled"] "
// Where 16 bytes of a line lie: panels of eight pieces, turned about by the line, so that neighbours in eight lines lie in different banks.
template <int LINES> __device__ __forceinline__ unsigned swizzled(int line, int piece) {
  return piece / 8 * (LINES * 128) + line * 128 + (((piece & 7) ^ (line & 7)) << 4);
}
"
["keep_words"] "
// Eight columns each, of which a thread has two neighbours in each of two rows, as 16 lines of 128 bytes.
__device__ __forceinline__ void keep_words(unsigned to, const unsigned (&words)[8][2]) {
  const int line = threadIdx.x % 16, half = threadIdx.x % 32 / 16;
#pragma unroll
  for (int k = 0; k < 8; k += 2)
    asm volatile(\"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\"
                 :: \"r\"(to + swizzled<16>(line, k + half)), \"r\"(words[k][0]), \"r\"(words[k][1]), \"r\"(words[k + 1][0]), \"r\"(words[k + 1][1]) : \"memory\");
}
"
["dealt"] "
// Where a line lies if every lane of four shall have N neighbours, of which units leave it two at a time.
template <int N> __device__ __forceinline__ int dealt(int line) {
  return (line / (4 * N) * (N / 2) + line % N / 2) * 8 + line / N % 4 * 2 + line % 2;
}
"
["load_matrices", "load_turned"] "
// Four matrices of 8 x 8 elements; every lane names the line of one.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned at) {
  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\" : \"=r\"(to[0]), \"=r\"(to[1]), \"=r\"(to[2]), \"=r\"(to[3]) : \"r\"(at));
}
__device__ __forceinline__ void load_turned(unsigned (&to)[4], unsigned at) {
  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\" : \"=r\"(to[0]), \"=r\"(to[1]), \"=r\"(to[2]), \"=r\"(to[3]) : \"r\"(at));
}
"
["load_rows"] "
// 16 rows and 16 steps of the sum of a left factor, as units take it: from lines along the sum, or from lines across it.
template <bool ALONG, int LINES> __device__ __forceinline__ void load_rows(unsigned (&to)[4], unsigned from, int row, int step) {
  const int lane = threadIdx.x % 32;
  if constexpr (ALONG) load_matrices(to, from + swizzled<LINES>(row + lane % 16, step / 8 + lane / 16));
  else load_turned(to, from + swizzled<LINES>(step + lane / 16 * 8 + lane % 8, row / 8 + lane / 8 % 2));
}
"
["load_columns"] "
// 16 columns and 16 steps of the sum of a right factor: two for the first eight columns, two for the others.
template <bool ALONG, int LINES> __device__ __forceinline__ void load_columns(unsigned (&to)[4], unsigned from, int column, int step) {
  const int lane = threadIdx.x % 32;
  if constexpr (ALONG) load_matrices(to, from + swizzled<LINES>(column + lane / 16 * 8 + lane % 8, step / 8 + lane / 8 % 2));
  else load_turned(to, from + swizzled<LINES>(step + lane % 16, column / 8 + lane / 16));
}
"
["multiply_add"] "
// The unit for matrices: 16 x 8 sums, 16 steps.
template <class T> struct Unit;
template <> struct Unit<bf16> {
  static __device__ __forceinline__ void multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm(\"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"
        : \"+f\"(sums[0]), \"+f\"(sums[1]), \"+f\"(sums[2]), \"+f\"(sums[3]) : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b0), \"r\"(b1));
  }
};
template <> struct Unit<f16> {
  static __device__ __forceinline__ void multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm(\"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"
        : \"+f\"(sums[0]), \"+f\"(sums[1]), \"+f\"(sums[2]), \"+f\"(sums[3]) : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b0), \"r\"(b1));
  }
};
"
["multiply_tiles"] "
// Adds the product of a warp's rows and columns of two tiles in shared memory to its sums.
template <class T, int DEPTH, bool A_ALONG, int A_LINES, bool B_ALONG, int B_LINES, int M, int N>
__device__ __forceinline__ void multiply_tiles(float (&sums)[M][N][4], unsigned a, int row, unsigned b, int column) {
#pragma unroll
  for (int step = 0; step < DEPTH; step += 16) {
    unsigned x[M][4], y[N / 2][4];
#pragma unroll
    for (int m = 0; m < M; ++m) load_rows<A_ALONG, A_LINES>(x[m], a, row + m * 16, step);
#pragma unroll
    for (int n = 0; n < N / 2; ++n) load_columns<B_ALONG, B_LINES>(y[n], b, column + n * 16, step);
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int n = 0; n < N; ++n) Unit<T>::multiply_add(sums[m][n], x[m], y[n / 2][n % 2 * 2], y[n / 2][n % 2 * 2 + 1]);
    }
  }
}
"
["fetch_early"] "
// Brings a line from memory into the cache that all processors share; nothing is read yet.
__device__ __forceinline__ void fetch_early(const void* at) { asm volatile(\"prefetch.global.L2 [%0];\" :: \"l\"(__cvta_generic_to_global(at))); }
"
["meet_cluster"] "
// All threads of a cluster meet, and see what the others have written before.
__device__ __forceinline__ void meet_cluster() {
  asm volatile(\"barrier.cluster.arrive.release;\\n  barrier.cluster.wait.acquire;\" ::: \"memory\");
}
"
["sum_of_parts"] "
// The sums of what the blocks of a cluster have at the same places of their shared memory, in the order of the blocks.
template <int PARTS, int N> __device__ __forceinline__ void sum_of_parts(float (&sums)[N], const float* at) {
  const unsigned own = shared_address(at);
#pragma unroll
  for (int part = 0; part < PARTS; ++part) {
    unsigned there;
    asm(\"mapa.shared::cluster.u32 %0, %1, %2;\" : \"=r\"(there) : \"r\"(own), \"r\"(part));
    float x[N];
    if constexpr (N % 4 == 0) {
#pragma unroll
      for (int k = 0; k < N; k += 4)
        asm volatile(\"ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];\" : \"=f\"(x[k]), \"=f\"(x[k + 1]), \"=f\"(x[k + 2]), \"=f\"(x[k + 3]) : \"r\"(there + k * 4) : \"memory\");
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) asm volatile(\"ld.shared::cluster.f32 %0, [%1];\" : \"=f\"(x[k]) : \"r\"(there + k * 4) : \"memory\");
    }
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] = part == 0 ? x[k] : sums[k] + x[k];
  }
}
"
["multiply_scores"] "
// Adds the product of rounded scores, which this warp has as sums, and a tile in shared memory to its sums.
template <class T, bool ALONG, int LINES, int M, int N, int K>
__device__ __forceinline__ void multiply_scores(float (&sums)[M][N][4], const float (&scores)[M][K][4], unsigned b) {
#pragma unroll
  for (int k = 0; k < K / 2; ++k) {
    unsigned x[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        x[m][half * 2] = Narrow<T>::pair(scores[m][k * 2 + half][0], scores[m][k * 2 + half][1]);
        x[m][half * 2 + 1] = Narrow<T>::pair(scores[m][k * 2 + half][2], scores[m][k * 2 + half][3]);
      }
    }
#pragma unroll
    for (int n = 0; n < N / 2; ++n) {
      unsigned y[4];
      load_columns<ALONG, LINES>(y, b, n * 16, k * 16);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        Unit<T>::multiply_add(sums[m][n * 2], x[m], y[0], y[1]);
        Unit<T>::multiply_add(sums[m][n * 2 + 1], x[m], y[2], y[3]);
      }
    }
  }
}
"
["scale_rows"] "
template <int M, int N> __device__ __forceinline__ void scale_rows(float (&sums)[M][N][4], int m, int half, float by) {
#pragma unroll
  for (int n = 0; n < N; ++n) sums[m][n][half * 2] *= by, sums[m][n][half * 2 + 1] *= by;
}
"
["fence_copies"] "
// What was written into shared memory is seen by units that read it by themselves.
__device__ __forceinline__ void fence_copies() { asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\"); }
"
["begin_group"] "
__device__ __forceinline__ void begin_group() { asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\"); }
"
["commit_group"] "
__device__ __forceinline__ void commit_group() { asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\"); }
"
["wait_for_groups"] "
// Waits until no more than so many products of this group of warps are on their way.
template <int LEFT> __device__ __forceinline__ void wait_for_groups() { asm volatile(\"wgmma.wait_group.sync.aligned %0;\" :: \"n\"(LEFT) : \"memory\"); }
"
["described"] "
// A tile as units read it by themselves: where it begins, and how far its panels and its groups of eight lines lie apart.
__device__ __forceinline__ unsigned long long described(unsigned at, unsigned panels) {
  return (unsigned long long)(at >> 4 & 0x3fff) | (unsigned long long)(panels >> 4 & 0x3fff) << 16 | 64ull << 32 | 1ull << 62;
}
"
["keep_sums"] "
// Writes the sums of a warp where all threads can read them, row by row.
template <int PITCH, int M, int N> __device__ __forceinline__ void keep_sums(float* to, const float (&sums)[M][N][4]) {
  const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      float* const at = to + (m * 16 + row) * PITCH + n * 8 + column;
      *(Pack<float, 2>*)at = {{sums[m][n][0], sums[m][n][1]}};
      *(Pack<float, 2>*)(at + 8 * PITCH) = {{sums[m][n][2], sums[m][n][3]}};
    }
  }
}
"
["keep_columns"] "
// The same of so many columns, eight each, from one on.
template <int PITCH, int COUNT, int N> __device__ __forceinline__ void keep_columns(float* to, const float (&sums)[1][N][4], int first) {
  const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < COUNT; ++n) {
    float* const at = to + row * PITCH + n * 8 + column;
    *(Pack<float, 2>*)at = {{sums[0][first + n][0], sums[0][first + n][1]}};
    *(Pack<float, 2>*)(at + 8 * PITCH) = {{sums[0][first + n][2], sums[0][first + n][3]}};
  }
}
"
["multiply_plain"] "
// The same without units for matrices: a thread has blocks of 4 x 4 sums, A_STEP rows and B_STEP columns apart.
template <int DEPTH, int A_PITCH, int B_PITCH, int A_STEP, int B_STEP, int M, int N>
__device__ __forceinline__ void multiply_plain(float (&sums)[M][N], const float* a, const float* b) {
#pragma unroll
  for (int step = 0; step < DEPTH; ++step) {
    float x[M], y[N];
#pragma unroll
    for (int m = 0; m < M; m += 4) *(Pack<float, 4>*)(x + m) = *(const Pack<float, 4>*)(a + step * A_PITCH + m / 4 * A_STEP);
#pragma unroll
    for (int n = 0; n < N; n += 4) *(Pack<float, 4>*)(y + n) = *(const Pack<float, 4>*)(b + step * B_PITCH + n / 4 * B_STEP);
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int n = 0; n < N; ++n) sums[m][n] = fmaf(x[m], y[n], sums[m][n]);
    }
  }
}
"
["exp_below"] "
// The exponential of a difference that is not above zero, within 1e-7 of the one that it is added to.
__device__ __forceinline__ float exp_below(float a, float b) { float y; asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(y) : \"f\"((a - b) * 1.4426950408889634f)); return y; }
"
["spread"] "
// Where a line lies if each of LANES shall have N neighbours, and all lanes read lines side by side.
template <int N, int LANES> __device__ __forceinline__ int spread(int line) {
  return (line / (N * LANES) * N + line % N) * LANES + line / N % LANES;
}
"
["multiply_lines"] "
// Adds the products of lines along the sum to sums: a thread has lines that lie A_STEP and B_STEP lines apart.
template <int UNROLL, int DEPTH, int PITCH, int A_STEP, int B_STEP, int M, int N>
__device__ __forceinline__ void multiply_lines(float (&sums)[M][N], const float* a, const float* b) {
#pragma unroll UNROLL
  for (int step = 0; step < DEPTH; step += 4) {
    Pack<float, 4> x[M];
#pragma unroll
    for (int m = 0; m < M; ++m) x[m] = *(const Pack<float, 4>*)(a + m * A_STEP * PITCH + step);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const Pack<float, 4> y = *(const Pack<float, 4>*)(b + n * B_STEP * PITCH + step);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
#pragma unroll
        for (int m = 0; m < M; ++m) sums[m][n] = fmaf(x[m].at[e], y.at[e], sums[m][n]);
      }
    }
  }
}
"
["multiply_weights"] "
// The same where lines of the right factor lie across the sum: a thread has four neighbours in each of some columns, B_STEP apart.
template <int UNROLL, int DEPTH, int A_PITCH, int A_STEP, int B_PITCH, int B_STEP, int M, int N>
__device__ __forceinline__ void multiply_weights(float (&sums)[M][N], const float* a, const float* b) {
#pragma unroll UNROLL
  for (int step = 0; step < DEPTH; step += 4) {
    Pack<float, 4> x[M];
#pragma unroll
    for (int m = 0; m < M; ++m) x[m] = *(const Pack<float, 4>*)(a + m * A_STEP * A_PITCH + step);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      Pack<float, 4> y[N / 4];
#pragma unroll
      for (int n = 0; n < N / 4; ++n) y[n] = *(const Pack<float, 4>*)(b + (step + e) * B_PITCH + n * B_STEP);
#pragma unroll
      for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int n = 0; n < N; ++n) sums[m][n] = fmaf(x[m].at[e], y[n / 4].at[n % 4], sums[m][n]);
      }
    }
  }
}
"
["keep_lines"] "
// Writes what a thread has of lines that lie STEP apart, COUNT neighbours at a time, APART from each other.
template <int PITCH, int STEP, int COUNT, int APART, int M, int N> __device__ __forceinline__ void keep_lines(float* to, const float (&values)[M][N]) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int n = 0; n < N; n += COUNT) {
      Pack<float, COUNT> pack;
#pragma unroll
      for (int e = 0; e < COUNT; ++e) pack.at[e] = values[m][n + e];
      *(Pack<float, COUNT>*)(to + m * STEP * PITCH + n / COUNT * APART) = pack;
    }
  }
}
"
["scale_row"] "
template <int N> __device__ __forceinline__ void scale_row(float (&sums)[N], float by) {
#pragma unroll
  for (int n = 0; n < N; ++n) sums[n] *= by;
}
"
["keep_plain"] "
template <int PITCH, int A_STEP, int B_STEP, int M, int N> __device__ __forceinline__ void keep_plain(float* to, const float (&sums)[M][N]) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int n = 0; n < N; n += 4)
      *(Pack<float, 4>*)(to + (m / 4 * A_STEP + m % 4) * PITCH + n / 4 * B_STEP) = {{sums[m][n], sums[m][n + 1], sums[m][n + 2], sums[m][n + 3]}};
  }
}
"
}
