// Weighted L1 comparisons, all float32 and row-major: score[b, n] = −Σ_d |q[b, d] − w[b, d] c[n, d]|, B queries,
// N candidates, D features. Compiled by `native.py` with NVRTC, so nothing is included. WEIGHTED: candidates have
// weights r, too, and it is −Σ_d |q[b, d] r[n, d] − w[b, d] c[n, d]|; else r is not read.
//
// Scores. A block owns a tile of BM queries × BN candidates, a thread TM × TN of it in registers. BK features of the
// tile's rows at a time are copied into shared memory (asynchronously, two buffers) and stored feature by feature, so
// that a thread fetches its operands of one feature as 16-byte vectors. Rows in shared memory are 4 floats longer than
// the tile: a warp copies 4 rows × 8 features into 32 different banks. A thread's rows and columns come in groups of 4,
// spread so that a warp's vectors are neighbours. Every score is one sum over ascending features, whatever the tile, so
// all kernels here agree on it bit for bit; only a split over D (grid z) changes the order of the sum. `add_parts` adds
// the parts of a split in a fixed order.
//
// Gradients. A thread owns FT features (a warp: 32 FT neighbours) and TN candidates, whose values and gradients stay in
// registers while it walks over the block's share of the queries, MB at a time. The WARPS warps of a block share
// features and differ in candidates; their sums for queries and scales meet in shared memory. An element takes five
// instructions, three of them with three operands: fetching those from the registers is what bounds the loop.

#ifndef NATIVE_ON_CPU  // tests/native_on_cpu.cpp, which runs all this without a GPU, has its own of these
__device__ __forceinline__ unsigned address(const void *shared) {
    unsigned result;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(result) : "l"(shared));
    return result;
}

// Begins to copy 4 or 16 bytes into shared memory, or zeros. Four ask for no alignment of rows.
template <int BYTES = 4> __device__ __forceinline__ void copy(unsigned to, const float *from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES),
                 "r"(inside ? BYTES : 0)
                 : "memory");
}

__device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

extern __shared__ float4 memory[];
#endif

#define FOR(i, end, step) _Pragma("unroll") for (int i = 0; i < (end); i += (step))

// ---------------------------------------------------------------------------------------------------- tiles of scores

// SCALED: queries have scales; else w is not read, and a term is |q − c|.
template <int BM, int BN, int TM, int TN, int BK, int UNROLL, bool WEIGHTED, bool SCALED = true> struct Tile {
    static constexpr int ACROSS = BN / (8 * TN);  // warps side by side; a warp is 4 × 8 threads
    static constexpr int THREADS = BM / (4 * TM) * ACROSS * 32;
    static constexpr int LM = BM + 4, LN = BN + 4;
    static constexpr int CANDIDATES = BK * (1 + SCALED) * LM;  // where those of a buffer begin
    static constexpr int BUFFER = CANDIDATES + BK * (1 + WEIGHTED) * LN;

    float acc[TM][TN];
    int row, col;  // of this thread's first element

    __device__ Tile() {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        // Lanes 1 apart share columns, lanes 2 apart rows: so each vector load takes half the passes.
        row = warp / ACROSS * 4 * TM + ((lane & 1) | (lane >> 4 << 1)) * 4;
        col = warp % ACROSS * 8 * TN + (lane >> 1 & 7) * 4;
    }

    __device__ int row_of(int i) const { return row + i / 4 * 16 + i % 4; }

    __device__ int col_of(int j) const { return col + j / 4 * 32 + j % 4; }

    // Copies BK features of ROWS rows; rows past the last are copies of it, features past `left` zero.
    template <int ROWS> __device__ static void stage(unsigned to, const float *from, int last, int D, int left) {
        const int k = threadIdx.x % 8, first = threadIdx.x / 8;
        to += (k * (ROWS + 4) + first) * 4;
        FOR(r, ROWS, THREADS / 8) {
            const float *row = from + k + (long long)min(first + r, last) * D;
            FOR(kk, BK, 8) copy(to + (kk * (ROWS + 4) + r) * 4, row + kk, k + kk < left);
        }
    }

    // The smallest sum so far of this thread's elements.
    __device__ float nearest() const {
        float least = acc[0][0];
        FOR(i, TM, 1) FOR(j, TN, 1) least = fminf(least, acc[i][j]);
        return least;
    }

    // acc = Σ |q − w c|, or Σ |q r − w c|, or Σ |q − c|, over features `begin` to `end`. Without scales, it stops as soon
    // as all sums of the tile exceed `limit`: they only grow.
    __device__ void sum(const float *q, const float *w, const float *c, const float *r, int m0, int n0, int B, int N,
                        int D, int begin, int end, float limit = 0.0f) {
        q += (long long)m0 * D, w += (long long)m0 * D, c += (long long)n0 * D, r += (long long)n0 * D;
        unsigned to = address(memory);
        const auto stage_all = [&](int k0) {
            stage<BM>(to, q + k0, B - 1 - m0, D, end - k0);
            if (SCALED) stage<BM>(to + BK * LM * 4, w + k0, B - 1 - m0, D, end - k0);
            stage<BN>(to + CANDIDATES * 4, c + k0, N - 1 - n0, D, end - k0);
            if (WEIGHTED) stage<BN>(to + (CANDIDATES + BK * LN) * 4, r + k0, N - 1 - n0, D, end - k0);
        };
        const float *at = (const float *)memory;
        FOR(i, TM, 1) FOR(j, TN, 1) acc[i][j] = 0.0f;
        stage_all(begin);
        int ahead = BUFFER;  // from the buffer that is read to the one that is filled
#pragma unroll 1
        for (int k0 = begin; k0 < end; k0 += BK) {
            copies_done();
            if (SCALED || k0 % (8 * BK) != 0) __syncthreads();
            else if (!__syncthreads_or(nearest() <= limit)) return;
            to += ahead * 4;
            if (k0 + BK < end) stage_all(k0 + BK);
#pragma unroll UNROLL
            for (int k = 0; k < BK; k++) {
                float a[TM], b[TM], e[TN], f[TN];
                FOR(i, TM, 4) {
                    *(float4 *)(a + i) = *(const float4 *)(at + k * LM + row_of(i));
                    if (SCALED) *(float4 *)(b + i) = *(const float4 *)(at + (BK + k) * LM + row_of(i));
                }
                FOR(j, TN, 4) {
                    *(float4 *)(e + j) = *(const float4 *)(at + CANDIDATES + k * LN + col_of(j));
                    if (WEIGHTED)
                        *(float4 *)(f + j) = *(const float4 *)(at + CANDIDATES + (BK + k) * LN + col_of(j));
                }
                FOR(i, TM, 1) FOR(j, TN, 1) {
                    const float left = WEIGHTED ? a[i] * f[j] : a[i];
                    acc[i][j] = __fadd_rn(acc[i][j], fabsf(SCALED ? __fmaf_rn(-b[i], e[j], left) : left - e[j]));
                }
            }
            at += ahead, ahead = -ahead;
        }
        copies_done();  // of an empty range
    }
};

// Part `block z` of the scores, of [parts, B, N].
template <int BM, int BN, int TM, int TN, int BK, int UNROLL, int BLOCKS, bool WEIGHTED>
__global__ void __launch_bounds__(Tile<BM, BN, TM, TN, BK, UNROLL, WEIGHTED>::THREADS, BLOCKS)
    scores(const float *q, const float *w, const float *c, const float *r, float *out, int B, int N, int D, int chunk) {
    Tile<BM, BN, TM, TN, BK, UNROLL, WEIGHTED> tile;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN, begin = blockIdx.z * chunk;
    tile.sum(q, w, c, r, m0, n0, B, N, D, begin, min(begin + chunk, D));
    out += (long long)blockIdx.z * B * N;
    FOR(i, TM, 1) FOR(j, TN, 4) {
        const int m = m0 + tile.row_of(i), n = n0 + tile.col_of(j);
        const float *v = tile.acc[i] + j;
        float *to = out + (long long)m * N + n;
        if (m < B && n + 3 < N && N % 4 == 0) {
            *(float4 *)to = make_float4(-v[0], -v[1], -v[2], -v[3]);
        } else if (m < B) {
            if (n < N) to[0] = -v[0];
            if (n + 1 < N) to[1] = -v[1];
            if (n + 2 < N) to[2] = -v[2];
            if (n + 3 < N) to[3] = -v[3];
        }
    }
}

// Adds to higher[b] and equal[b] how many candidates score above and as true[b]. Candidate n is entity first + n; left
// out are entities own[b] and members[begin[b]:end[b]], which ascend.
template <int BM, int BN, int TM, int TN, int BK, int UNROLL, int BLOCKS>
__global__ void __launch_bounds__(Tile<BM, BN, TM, TN, BK, UNROLL, false>::THREADS, BLOCKS)
    count_above(const float *q, const float *w, const float *c, const float *true_score, const long long *begin,
                const long long *end, const int *members, const long long *own, unsigned long long *higher,
                unsigned long long *equal, int B, int N, int D, int first) {
    typedef Tile<BM, BN, TM, TN, BK, UNROLL, false> T;
    __shared__ unsigned hidden[BM][BN / 32];  // a bit for each element of the tile
    T tile;
    // Blocks start in the order x, y, z: some tiles of queries meet all candidates, then the next, out of the cache.
    const int m0 = (blockIdx.z * gridDim.x + blockIdx.x) * BM, n0 = blockIdx.y * BN;
    if (m0 >= B) return;
    for (int m = threadIdx.x; m < BM; m += T::THREADS) {
        for (int word = 0; word < BN / 32; word++) {
            const int inside = N - n0 - word * 32;
            hidden[m][word] = inside >= 32 ? 0u : inside <= 0 ? ~0u : ~0u << inside;
        }
        if (m0 + m >= B) continue;
        const auto hide = [&](long long n) { hidden[m][n / 32] |= 1u << n % 32; };
        const long long least = (long long)first + n0, mine = own[m0 + m] - least, stop = end[m0 + m];
        if (mine >= 0 && mine < BN) hide(mine);
        long long low = begin[m0 + m], high = stop;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (members[middle] < least) low = middle + 1;
            else high = middle;
        }
        for (; low < stop && members[low] < least + BN; low++) hide(members[low] - least);
    }
    tile.sum(q, w, c, c, m0, n0, B, N, D, 0, D);
    FOR(i, TM, 1) {
        const int m = tile.row_of(i), b = m0 + m;
        const float reference = b < B ? true_score[b] : 0.0f;
        int count = 0;  // those above in the upper half, those equal in the lower
        FOR(j, TN, 4) {
            const unsigned seen = ~hidden[m][tile.col_of(j) / 32] >> tile.col_of(j) % 32;
            FOR(jj, 4, 1) {
                const float score = -tile.acc[i][j + jj];
                if (seen >> jj & 1) count += score > reference ? 0x10000 : score == reference ? 1 : 0;
            }
        }
#pragma unroll
        for (int step = 2; step < 16; step *= 2) count += __shfl_xor_sync(~0u, count, step);  // the lanes of a row
        if (b < B && (threadIdx.x & 14) == 0) {
            if (count >> 16) atomicAdd(higher + b, (unsigned long long)(count >> 16));
            if (count & 0xffff) atomicAdd(equal + b, (unsigned long long)(count & 0xffff));
        }
    }
}

// Writes the pairs that score at least *threshold, as many as there is room for (`most`), and adds to *num how many there
// are. A score is −Σ |q − c|.
template <int BM, int BN, int TM, int TN, int BK, int UNROLL, int BLOCKS>
__global__ void __launch_bounds__(Tile<BM, BN, TM, TN, BK, UNROLL, false, false>::THREADS, BLOCKS)
    collect_above(const float *q, const float *c, const float *threshold, int *row, int *column, float *score,
                  unsigned long long *num, int B, int N, int D, int most) {
    Tile<BM, BN, TM, TN, BK, UNROLL, false, false> tile;
    const int m0 = (blockIdx.z * gridDim.x + blockIdx.x) * BM, n0 = blockIdx.y * BN;  // as in `count_above`
    if (m0 >= B) return;
    const float limit = -*threshold;
    tile.sum(q, q, c, c, m0, n0, B, N, D, 0, D, limit);
    if (!(tile.nearest() <= limit)) return;
    FOR(i, TM, 1) FOR(j, TN, 1) {
        const int m = m0 + tile.row_of(i), n = n0 + tile.col_of(j);
        if (!(tile.acc[i][j] <= limit) || m >= B || n >= N) continue;
        const unsigned long long place = atomicAdd(num, 1ULL);
        if (place < most) row[place] = m, column[place] = n, score[place] = -tile.acc[i][j];
    }
}

// The score of query b with row b of c [B, D]. A warp takes 32 queries, a lane one of them.
__global__ void __launch_bounds__(32)
    true_scores(const float *q, const float *w, const float *c, float *out, int B, int D) {
    __shared__ float tile[3][32][33];
    const int lane = threadIdx.x, m0 = blockIdx.x * 32;
    const unsigned to = address(&tile[0][0][lane]);
    float acc = 0.0f;
    for (int k = lane; k < D + lane; k += 32) {
#pragma unroll 8
        for (int r = 0; r < 32; r++) {
            const long long from = (long long)min(m0 + r, B - 1) * D + k;
            copy(to + r * 33 * 4, q + from, k < D);
            copy(to + (32 + r) * 33 * 4, w + from, k < D);
            copy(to + (64 + r) * 33 * 4, c + from, k < D);
        }
        copies_done();
        __syncwarp();
        FOR(i, 32, 1)
            acc = __fadd_rn(acc, fabsf(__fmaf_rn(-tile[1][lane][i], tile[2][lane][i], tile[0][lane][i])));
        __syncwarp();
    }
    if (m0 + lane < B) out[m0 + lane] = -acc;
}

// ---------------------------------------------------------------------------------------------------------- gradients

__device__ __forceinline__ float flip(float value, float by) {  // value, negated where by is negative
    return __uint_as_float(__float_as_uint(value) ^ (__float_as_uint(by) & 0x80000000u));
}

// Given g [B, N] and s = g sign(q − w c): dq = −Σ_n s and dw = Σ_n s c in dqw [tiles of candidates, 2, B, D], and
// dc = Σ_b s w, over the queries of this block, in dc [chunks, N, D]. WEIGHTED: s = g sign(q r − w c), dq = −Σ_n s r, and
// dc holds dr = −Σ_b s q, too, as [chunks, 2, N, D].
template <int FT, int TN, int WARPS, int MB, int BLOCKS, bool WEIGHTED>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    gradients(const float *q, const float *w, const float *c, const float *r, const float *g, float *dqw, float *dc,
              int B, int N, int D, int chunk) {
    constexpr int THREADS = WARPS * 32, BN = TN * WARPS, BD = 32 * FT;
    constexpr int BUFFER = MB * (BN + 2 * BD);  // g [MB, BN]; pairs of q and w [MB, BD]
    constexpr int ROWS = THREADS / BD, OWN = MB / ROWS, SUMS = MB * BD;  // queries copied at a time, how often
    static_assert(THREADS % BD == 0 && MB % ROWS == 0 && TN % 4 == 0);
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int d0 = blockIdx.x * BD, n0 = blockIdx.y * BN, first = blockIdx.z * chunk, last = min(first + chunk, B);
    const int row = tid / BD, d = d0 + tid % BD;  // what this thread copies and stores
    const int width = N % 4 == 0 && (unsigned long long)g % 16 == 0 ? 4 : 1;  // of its copies of g
    dqw += (long long)blockIdx.y * 2 * B * D;
    dc += (long long)blockIdx.z * (1 + WEIGHTED) * N * D;

    const auto stage = [&](int m0, unsigned to) {
#pragma unroll 4
        for (int at = tid * width; at < MB * BN; at += THREADS * width) {
            const int m = m0 + at / BN, n = n0 + at % BN;
            if (width == 4) copy<16>(to + at * 4, g + m * N + n, m < last && n < N);
            else copy<4>(to + at * 4, g + m * N + n, m < last && n < N);
        }
    };
    float2 next[OWN];
    const auto fetch = [&](int m0) {
        FOR(i, OWN, 1) {
            const int m = m0 + row + i * ROWS;
            const bool inside = m < last && d < D;
            next[i] = inside ? make_float2(q[m * D + d], w[m * D + d]) : make_float2(0.0f, 0.0f);
        }
    };
    const auto place = [&](float *to) {
        FOR(i, OWN, 1)((float2 *)(to + MB * BN))[tid + i * THREADS] = next[i];
    };
    // Adds the warps' sums of the queries from m0.
    const auto finish = [&](int m0, const float2 *from) {
        FOR(i, OWN, 1) {
            float2 total = make_float2(0.0f, 0.0f);
            const int at = tid + i * THREADS, m = m0 + row + i * ROWS;
            FOR(k, WARPS, 1) total.x += from[k * SUMS + at].x, total.y += from[k * SUMS + at].y;
            if (m >= last || d >= D) continue;
            dqw[m * D + d] = total.x, dqw[(B + m) * D + d] = total.y;
        }
    };

    float *at = (float *)memory;  // the buffer that is read
    stage(first, address(at));
    fetch(first);
    float e[FT][TN], de[FT][TN], h[FT][TN], dh[FT][TN];  // candidates and weights
    FOR(f, FT, 1) FOR(j, TN, 1) {
        const int n = n0 + warp * TN + j, d = d0 + f * 32 + lane;
        const bool inside = n < N && d < D;
        e[f][j] = inside ? c[n * D + d] : 0.0f;
        h[f][j] = WEIGHTED && inside ? r[n * D + d] : 0.0f;
        de[f][j] = dh[f][j] = 0.0f;
    }
    place(at);
    float2 *sums = (float2 *)(at + 2 * BUFFER);
    int ahead = BUFFER, other = WARPS * SUMS;  // from the buffer that is read to the one that is filled; those of sums
#pragma unroll 1
    for (int m0 = first; m0 < last; m0 += MB) {
        copies_done();
        __syncthreads();
        stage(m0 + MB, address(at + ahead));  // zeros after the last
        fetch(m0 + MB);
        if (m0 > first) finish(m0 - MB, sums + other);
        const float *up = at + warp * TN;
        const float2 *own = (const float2 *)(at + MB * BN) + lane;
        float2 *to = sums + warp * SUMS + lane;
#pragma unroll 1
        for (int m = 0; m < MB; m++, up += BN, own += BD, to += BD) {
            float2 a[FT], sum[FT];
            FOR(f, FT, 1) a[f] = own[f * 32], sum[f] = make_float2(0.0f, 0.0f);
            FOR(j0, TN, 4) {
                float s[4], v[4][FT];
                *(float4 *)s = *(const float4 *)(up + j0);
#define EACH FOR(k, 4, 1) FOR(f, FT, 1)  // step by step for four: instructions in a row then share an operand
                EACH v[k][f] = WEIGHTED ? a[f].x * h[f][j0 + k] : a[f].x;
                EACH v[k][f] = flip(s[k], __fmaf_rn(-a[f].y, e[f][j0 + k], v[k][f]));
                EACH sum[f].x = WEIGHTED ? __fmaf_rn(-v[k][f], h[f][j0 + k], sum[f].x) : sum[f].x - v[k][f];
                EACH sum[f].y = __fmaf_rn(v[k][f], e[f][j0 + k], sum[f].y);
                EACH de[f][j0 + k] = __fmaf_rn(v[k][f], a[f].y, de[f][j0 + k]);
                if (WEIGHTED) EACH dh[f][j0 + k] = __fmaf_rn(-v[k][f], a[f].x, dh[f][j0 + k]);
            }
            FOR(f, FT, 1) to[f * 32] = sum[f];
        }
        place(at + ahead);
        at += ahead, ahead = -ahead, sums += other, other = -other;
    }
    __syncthreads();
    if (first < last) finish(first + (last - first - 1) / MB * MB, sums + other);
    copies_done();
    FOR(f, FT, 1) FOR(j, TN, 1) {
        const int n = n0 + warp * TN + j, d = d0 + f * 32 + lane;
        if (n >= N || d >= D) continue;
        dc[n * D + d] = de[f][j];
        if (WEIGHTED) dc[(N + n) * D + d] = dh[f][j];
    }
}

// to[i] = Σ_p from[p, i], twice: two lists of sums in one launch.
__global__ void __launch_bounds__(256)
    add_parts(const float *from, float *to, int parts, int size, const float *from2, float *to2, int parts2,
              int size2) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i >= size) i -= size, from = from2, to = to2, parts = parts2, size = size2;
    if (i >= size) return;
    float total = 0.0f;
#pragma unroll 8
    for (int p = 0; p < parts; p++) total += from[(long long)p * size + i];
    to[i] = total;
}
