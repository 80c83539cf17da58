//! Worked numbers: each expectation is computed by hand from the spec, and measured times stand beside it where known.

use super::*;

fn spec(name: &str) -> &'static DeviceSpec {
    DeviceSpec::find(name).unwrap()
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * b.abs()
}

/// gelu(a + b) on `n` elements of f32: two streams in, one out.
fn add_gelu(n: f64, spec: &DeviceSpec, since: f64) -> Work {
    let mut work = Work::default();
    for _ in 0..2 {
        work.read(Stream::of(4.0 * n).warm(since));
    }
    work.write(Stream::of(4.0 * n).warm(since));
    work.operate(Unit::Elementwise(DType::F32), 9.0 * n).scalar(Scalar::Tanh, n, DType::F32);
    match spec.kind {
        Machine::Gpu => work.divide((n / 1024.0).ceil(), 256.0),
        Machine::Cpu => work.divide((n / 4096.0).ceil(), 1.0),
    };
    work
}

#[test]
fn a_long_elementwise_kernel_takes_its_bytes_over_the_bandwidth() {
    // 3 · 4 · 8192 · 4096 = 402.7 MB. At 4.8 TB/s: 83.9 µs; at the 89 % that a copy reaches: 94.3, and a launch of 1.5.
    // Measured: 98.5 µs.
    let h200 = spec("h200");
    let n = 8192.0 * 4096.0;
    let got = price(&add_gelu(n, h200, f64::INFINITY), h200);
    let bytes = 12.0 * n;
    assert!(close(got.us, bytes / 4.8e6 / 0.89 + 1.5, 1e-9), "{got:?}");
    assert!(close(got.us, bytes / 4.8e6, 0.15) && close(got.us, 98.5, 0.05), "{got:?}");
    assert_eq!(got.bound, Bound::Memory(2));
    assert_eq!(got.bound.describe(h200), "hbm");
    assert_eq!(got.occupancy, 1.0);
}

#[test]
fn a_large_product_takes_its_operations_over_the_matrix_units() {
    // 8192³ in bf16: 2 · 8192³ = 1.1 PFLOP at 0.78 · 989 TFLOP/s: 1425 µs. 128×256 blocks: 2048 on 132 cores, so the fullest
    // has 16 of 15.5: 1470 µs. Measured: 1393 (789 TFLOP/s) to 1583.
    let h200 = spec("h200");
    let m = 8192.0;
    let mut work = Work::default();
    let panel = Stream::of(2.0 * m * m);
    work.read(panel.again(32.0, 64e3)).read(panel.again(64.0, 64e3)).write(panel);
    work.dot(2.0 * m * m * m, DType::BF16, h200).divide(2048.0, 384.0);
    let got = price(&work, h200);
    assert!(close(got.us, 2.0 * m.powi(3) / (0.78 * 989e6) * (16.0 * 132.0 / 2048.0) + 1.5, 1e-9), "{got:?}");
    assert!(close(got.us, 1500.0, 0.08));
    assert_eq!(got.bound, Bound::Compute(Unit::Matrix(DType::BF16)));
    assert_eq!(got.bound.describe(h200), "matrix units (bf16)");
}

#[test]
fn a_tiny_kernel_is_its_launch() {
    let mut work = Work::default();
    work.read(Stream::of(4e3)).write(Stream::of(4e3)).operate(Unit::Elementwise(DType::F32), 1e3);
    let got = price(work.divide(1.0, 256.0), spec("h200"));
    // A launch, and one block that waits for its first bytes.
    assert!(close(got.us, 1.5 + 0.8, 1e-9), "{got:?}");
    assert_eq!(got.bound, Bound::Launch);
    // Two kernels instead of one: one launch more.
    work.launches = 2.0;
    assert!(close(price(&work, spec("h200")).us, 2.0 * 1.5 + 0.8, 1e-9));
}

#[test]
fn two_cores_are_priced_as_they_were_measured() {
    let cpu = spec("cpu");
    // gelu(a + b), a million elements that lie in L3, 12.6 MB: at 77 GB/s 163 µs. Its arithmetic: 14/8 of an exp2 at
    // 0.9 · 17.9 G/s and 9 operations at 0.94 · 178.5 G/s, 114 + 56 = 170 µs. Measured: 163.
    let n = f64::from(1 << 20);
    let warm = price(&add_gelu(n, cpu, 12.0 * n), cpu);
    assert!(close(warm.memory_us, 163.4, 0.01) && close(warm.us, 163.0, 0.06), "{warm:?}");
    // 50 million elements from main memory: 600 MB at 45 GB/s. Measured: 12.6 ms where nobody else was, 20 otherwise.
    let cold = price(&add_gelu(50e6, cpu, f64::INFINITY), cpu);
    assert!(close(cold.us, 600e6 / 45.12e3, 0.01), "{cold:?}");
    assert_eq!(cold.bound.describe(cpu), "dram");
    // 512×768×3072 in f32: 2.42 GFLOP at 94 % of 357 GFLOP/s. Measured: 342 GFLOP/s, 7.06 ms.
    let (m, k, n) = (512.0, 768.0, 3072.0);
    let mut product = Work::default();
    product.read(Stream::of(4.0 * m * k)).read(Stream::of(4.0 * k * n)).write(Stream::of(4.0 * m * n));
    product.dot(2.0 * m * k * n, DType::F32, cpu).divide(96.0, 1.0);
    let got = price(&product, cpu);
    assert!(close(got.us, 7060.0, 0.03), "{got:?}");
    assert_eq!(got.bound, Bound::Compute(Unit::Fma(DType::F32)));
    // The same in bf16 on tiles: 2180 GFLOP/s measured.
    product.operations.clear();
    assert!(close(price(product.dot(2.0 * m * k * n, DType::BF16, cpu), cpu).us, 2.0 * m * k * n / 2.18e6, 0.05));
    // A row of 4096 times a matrix: 67 MB of weights. Measured: 1.12 ms; writing makes the average rate lower.
    let mut row = Work::default();
    row.read(Stream::of(4.0 * 4096.0 * 4096.0)).dot(2.0 * 4096.0 * 4096.0, DType::F32, cpu).divide(64.0, 1.0);
    let got = price(&row, cpu);
    assert!(got.us > 1120.0 && got.us < 1120.0 * 1.4, "{got:?}");
    assert_eq!(got.bound.describe(cpu), "dram");
}

#[test]
fn data_that_was_just_produced_is_read_from_where_it_is() {
    let h200 = spec("h200");
    let work = |bytes: f64, since: f64| {
        let mut work = Work::default();
        work.read(Stream::of(bytes).warm(since)).write(Stream::of(bytes)).divide(132e2, 256.0);
        price(&work, h200).memory_us
    };
    // 20 MB just written: read from L2, main memory sees the written half only, and L2 with all 40 MB takes longer.
    let (bytes, hbm, l2) = (20e6, 4.8e6 * 0.89, 8.4e6 * 0.65);
    assert!(close(work(bytes, bytes), 2.0 * bytes / l2, 1e-9));
    assert!(close(work(bytes, f64::INFINITY), 2.0 * bytes / hbm, 1e-9));
    // 200 MB do not wait in 60 MiB.
    assert!(close(work(200e6, 200e6), 400e6 / hbm, 1e-9));
    // From one to the other without a jump.
    let steps: Vec<f64> = (50..140).map(|mb| work(bytes, f64::from(mb) * 1e6)).collect();
    assert!(steps.windows(2).all(|w| w[1] >= w[0] && w[1] < w[0] * 1.05));
}

#[test]
fn a_row_that_is_read_twice_costs_the_memory_that_still_has_it() {
    let cpu = spec("cpu");
    let row = |row_bytes: f64| {
        let mut work = Work::default();
        let all = Stream::of(64e6);
        work.read(all.again(3.0, row_bytes)).write(all).divide(64e6 / row_bytes, 1.0);
        price(&work, cpu).memory_us
    };
    // Rows of 16 KB: later passes come from L1, and main memory sees two passes in all.
    assert!(close(row(16e3), 128e6 / 45.12e3, 1e-9));
    // Rows of 1 MB: from L2, which is still faster than main memory.
    assert!(close(row(1e6), 128e6 / 45.12e3, 0.04));
    // One row of 64 MB: from L3, whose four passes take longer than two from main memory.
    assert!(close(row(32e6), 256e6 / 77e3, 0.01));
}

#[test]
fn narrow_and_scattered_accesses_cost_more() {
    let h200 = spec("h200");
    let us = |access: f64, run: f64| {
        let mut work = Work::default();
        work.read(Stream::of(100e6).strided(access, run)).write(Stream::of(100e6)).divide(132e2, 256.0);
        price(&work, h200).memory_us
    };
    // Elements of 4 bytes at a stride: every one costs a half-line of 64 bytes.
    assert!(close(us(4.0, 4.0), (16.0 * 100e6 + 100e6) / (4.8e6 * 0.89), 1e-9));
    // Single bytes, one to an access: the nearest level serves 1/16 of its rate.
    assert!(close(us(1.0, 1e9), (16.0 * 100e6 + 100e6) / (33.4e6 * 0.9), 1e-3));
    assert_eq!(us(16.0, 512.0), us(1e9, 1e9));
}

#[test]
fn registers_and_on_chip_memory_decide_how_many_threads_there_are() {
    let h200 = spec("h200");
    let with = |registers: f64, on_chip: f64| {
        let mut work = add_gelu(8192.0 * 4096.0, h200, f64::INFINITY);
        (work.registers, work.on_chip) = (registers, on_chip);
        price(&work, h200)
    };
    // 64 Ki registers for blocks of 256 threads: 8 blocks with 32 each, 2 with 128, 1 with 255.
    assert_eq!([32.0, 128.0, 255.0].map(|r| with(r, 0.0).occupancy), [1.0, 0.25, 0.125]);
    // 228 KiB for blocks that want 100: two.
    assert_eq!(with(32.0, 100.0 * 1024.0).occupancy, 0.25);
    // 256 threads a core, 32 bytes each of every stream: 8 KiB under way of the 40 KiB that the bandwidth takes. A stream of
    // 134 MB alone would take as long at a fifth of the rate; the three overlap.
    let slow = with(255.0, 0.0);
    assert!(close(slow.memory_us, 5.0 * 4.0 * 8192.0 * 4096.0 / (4.8e6 * 0.89), 1e-9), "{slow:?}");
    assert_eq!(with(32.0, 0.0).us, with(64.0, 0.0).us);
    // Beyond the limit registers are spilled. 2 · 45 · 4 bytes at each of 8.4 million turns: 3.0 GB, 46 KB a core, in L1.
    let spilled = with(300.0, 0.0);
    assert_eq!(spilled.spilled, 45.0);
    let turns = 8192.0 * 4096.0 / 4.0;
    assert!(close(spilled.memory_us, slow.memory_us, 1e-9));
    let mut busy = add_gelu(8192.0 * 4096.0, h200, f64::INFINITY);
    (busy.registers, busy.turns) = (300.0, 100.0 * turns);
    let l1 = 2.0 * 45.0 * 4.0 * 100.0 * turns + 12.0 * 8192.0 * 4096.0;
    assert!(close(price(&busy, h200).memory_us, l1 / (33.4e6 * 0.9), 5e-3), "{:?}", price(&busy, h200));
}

#[test]
fn blocks_are_dealt_to_cores_whole() {
    let h200 = spec("h200");
    let us = |blocks: f64| {
        let mut work = Work::default();
        work.dot(1e9 * blocks, DType::BF16, h200).divide(blocks, 384.0);
        price(&work, h200).compute_us
    };
    assert!(close(us(132.0), us(1.0), 1e-9));
    assert!(close(us(133.0), 2.0 * us(132.0), 1e-9));
    assert!(close(us(264.0), us(133.0), 1e-9));
    // One core draws no more than its share of main memory.
    let mut lonely = Work::default();
    lonely.read(Stream::of(100e6)).divide(1.0, 1024.0);
    assert!(close(price(&lonely, h200).memory_us, 100e6 / (80e3 * 0.89), 1e-9));
}

#[test]
fn special_functions_share_the_ports_of_a_cpu_and_not_those_of_a_gpu() {
    let mut work = Work::default();
    work.operate(Unit::Elementwise(DType::F32), 1e9).operate(Unit::Special(DType::F32), 1e8).divide(132e2, 256.0);
    let (cpu, h200) = (spec("cpu"), spec("h200"));
    let [a, b] = [Unit::Elementwise(DType::F32), Unit::Special(DType::F32)].map(|u| move |s: &DeviceSpec| s.rate(u));
    assert!(close(price(&work, cpu).compute_us, 1e6 / a(cpu) + 1e5 / b(cpu), 1e-9));
    assert!(close(price(&work, h200).compute_us, (1e6 / a(h200)).max(1e5 / b(h200)), 1e-9));
    // Where one must wait for the other, both count.
    work.serial = 1.0;
    assert!(close(price(&work, h200).compute_us, 1e6 / a(h200) + 1e5 / b(h200), 1e-9));
    // The cost column decides which is which: a sum is one operation, erf is 16 where exp2 is 8.
    let mut counted = Work::default();
    counted.scalar(Scalar::Add, 10.0, DType::F32).scalar(Scalar::Erf, 10.0, DType::F32);
    let expected = [(Unit::Elementwise(DType::F32), 10.0), (Unit::Special(DType::F32), 20.0)];
    assert_eq!(counted.operations[..], expected);
}

#[test]
fn sums_of_products_fill_a_core_with_fewer_threads_and_matrix_units_make_whole_tiles() {
    let h200 = spec("h200");
    let us = |unit: Unit, threads: f64, padding: f64| {
        let mut work = Work { padding, ..Work::default() };
        work.operate(unit, 1e9).divide(132.0, threads);
        price(&work, h200).compute_us
    };
    // 512 threads hide that a result can be used 4 cycles later; independent sums do half of that by themselves.
    let (fma, single) = (Unit::Fma(DType::F32), Unit::Elementwise(DType::F32));
    assert!(close(us(single, 256.0, 1.0), 2.0 * 1e6 / h200.rate(single), 1e-9));
    assert!(close(us(fma, 256.0, 1.0), 1e6 / h200.rate(fma), 1e-9));
    assert!(close(us(fma, 128.0, 1.0), 2.0 * 1e6 / h200.rate(fma), 1e-9));
    // Padding costs where there are matrix units, and nowhere else.
    let matrix = Unit::Matrix(DType::BF16);
    assert!(close(us(matrix, 128.0, 1.5), 1.5 * 1e6 / h200.rate(matrix), 1e-9));
    assert_eq!(us(fma, 256.0, 1.5), us(fma, 256.0, 1.0));
}

#[test]
fn work_on_the_host_pays_for_its_copies() {
    let mut work = Work { host_bytes: 1e6, ..Work::default() };
    work.operate(Unit::Host, 3e6);
    let h200 = price(&work, spec("h200"));
    // 3 million operations at 3 G/s, 1 MB at 50 GB/s, a round trip of 15 µs, a launch.
    assert!(close(h200.us, 1000.0 + 20.0 + 15.0 + 1.5, 1e-9), "{h200:?}");
    assert_eq!(h200.bound, Bound::Compute(Unit::Host));
    assert_eq!(price(&work, spec("cpu")).copy_us, 0.0);
    work.operations.clear();
    assert_eq!(price(&work, spec("h200")).bound, Bound::Copy);
}

/// A few numbers that differ from case to case; the same on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// From 1 to 10 to the power of `decades`, each decade equally likely.
    fn scale(&mut self, decades: u32) -> f64 {
        10f64.powf(self.below(1000) as f64 / 1000.0 * f64::from(decades))
    }

    fn work(&mut self, spec: &DeviceSpec) -> Work {
        let mut work = Work::default();
        for _ in 0..1 + self.below(4) {
            let mut stream = Stream::of(self.scale(9)).again(1.0 + self.below(3) as f64, self.scale(7));
            if self.below(2) == 0 {
                stream = stream.warm(self.scale(9));
            }
            if self.below(3) == 0 {
                stream = stream.strided([1.0, 4.0, 16.0][self.below(3) as usize], self.scale(3));
            }
            if self.below(3) == 0 {
                work.write(stream)
            } else {
                work.read(stream)
            };
        }
        let dtype = [DType::F32, DType::BF16, DType::F64, DType::I8][self.below(4) as usize];
        let units = [Unit::Fma(dtype), Unit::Matrix(dtype), Unit::Elementwise(dtype), Unit::Special(dtype), Unit::Host];
        for _ in 0..self.below(4) {
            work.operate(units[self.below(5) as usize], self.scale(12));
        }
        let threads = if spec.kind == Machine::Gpu { 32.0 * (1 + self.below(32)) as f64 } else { 1.0 };
        work.divide(self.scale(6).ceil(), threads);
        work.registers = self.below(400) as f64;
        work.on_chip = self.below(300_000) as f64;
        (work.barriers, work.joins) = (self.below(10) as f64, self.below(2) as f64);
        work.serial = self.below(3) as f64 / 2.0;
        work
    }
}

#[test]
fn more_never_costs_less() {
    type More = fn(&mut Work);
    let more: [(&str, More); 18] = [
        ("bytes of the first stream", |w| w.streams[0].bytes *= 1.7),
        ("bytes of the last stream", |w| w.streams.last_mut().unwrap().bytes *= 1.7),
        ("passes", |w| w.streams[0].passes += 1.0),
        ("distance before", |w| w.streams[0].since *= 2.0),
        ("distance between", |w| w.streams[0].between *= 2.0),
        ("a stream", |w| _ = w.read(Stream::of(1e5))),
        ("operations", |w| _ = w.operate(Unit::Elementwise(DType::F32), 1e6)),
        ("products", |w| _ = w.operate(Unit::Matrix(DType::BF16), 1e9)),
        ("registers", |w| w.registers *= 1.5),
        ("on-chip memory", |w| w.on_chip *= 1.5),
        ("barriers", |w| w.barriers += 1.0),
        ("joins", |w| w.joins += 1.0),
        ("recomputation", |w| w.recompute *= 1.5),
        ("padding", |w| w.padding *= 1.5),
        ("launches", |w| w.launches += 1.0),
        ("moves", |w| w.moves += 1e6),
        ("what is not hidden", |w| w.exposed += 0.5),
        ("a part before", |w| w.before.push(Work::default())),
    ];
    for spec in DeviceSpec::all() {
        let mut dice = Dice(7);
        for _ in 0..2000 {
            let work = dice.work(spec);
            let before = price(&work, spec);
            assert!(before.us.is_finite() && before.us > 0.0, "{work:?}");
            for (what, more) in &more {
                let mut larger = work.clone();
                more(&mut larger);
                let after = price(&larger, spec);
                assert!(
                    after.us >= before.us * (1.0 - 1e-12),
                    "{what} on {}: {before:?} {after:?} {work:?}",
                    spec.name
                );
            }
        }
    }
}

#[test]
fn parts_that_run_before_are_added_up() {
    let cpu = spec("cpu");
    let part = add_gelu(1e6, cpu, f64::INFINITY);
    let mut whole = add_gelu(4e6, cpu, f64::INFINITY);
    let (alone, before) = (price(&whole, cpu), price(&part, cpu));
    let (bytes, flops) = (whole.footprint(), whole.flops());
    whole.before = vec![part.clone(), part];
    let got = price(&whole, cpu);
    assert!(close(got.us, alone.us + 2.0 * before.us, 1e-12), "{got:?}");
    assert_eq!(got.bound, alone.bound);
    // What a kernel reads, writes and computes is what it is asked for.
    assert_eq!((whole.footprint(), whole.flops()), (bytes, flops));
}

#[test]
fn what_another_core_has_comes_by_way_of_what_they_share() {
    // 400 KB fit into the caches of both cores; each has touched half of what it reads.
    let read = |spec: &DeviceSpec| {
        let mut work = Work { is_detailed: true, ..Work::default() };
        work.read(Stream::of(4e5).warm(4e5)).divide(100.0, 1.0);
        price(&work, spec).memory_us
    };
    let cpu = spec("cpu");
    assert!(close(read(cpu), 2e5 / 77e3, 0.02), "{}", read(cpu));
    let one = cpu.scaled(1, &[]);
    assert!(close(read(&one), 4e5 / (178.0 * 0.57e3), 0.02), "{}", read(&one));
}

#[test]
fn products_wait_for_a_part_of_what_comes_from_far() {
    let cpu = spec("cpu");
    let mut work = Work { is_detailed: true, ..Work::default() };
    work.read(Stream::of(45.12e6)).dot(336e6, DType::F32, cpu).divide(96.0, 1.0);
    let hidden = price(&work, cpu);
    work.exposed = 0.5;
    // Main memory takes 1000 µs, arithmetic a little more; half of the former is not hidden.
    let got = price(&work, cpu);
    assert!(close(got.us - hidden.us, 500.0, 1e-9), "{got:?} {hidden:?}");
}

#[test]
fn what_products_reach_is_a_rate_of_its_own() {
    let mut cpu = spec("cpu").clone();
    assert_eq!(cpu.rate(Unit::Fma(DType::F32)), 357.0 * 0.94);
    cpu.product.rows.push((DType::F32, 300.0));
    assert_eq!(cpu.rate(Unit::Fma(DType::F32)), 300.0);
    assert_eq!(cpu.rate(Unit::Fma(DType::F64)), 300.0 * 178.0 / 357.0);
    assert_eq!(cpu.rate(Unit::Matrix(DType::BF16)), 5926.0 * 0.38, "units for matrices have theirs");
    assert_eq!(DeviceSpec::parse(&cpu.to_string()).unwrap(), cpu);
}
