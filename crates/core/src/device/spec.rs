//! What a device can do, as plain data: memories, arithmetic, limits, costs.
//!
//! Comes in: the text of a spec (`specs/*.spec`, or a user's file). Goes out: a [`DeviceSpec`], which the planner prices
//! kernels with and asks for what is legal. Rates are peaks; `reach` is the part of them that good code gets, and prices
//! are made of both.

use std::fmt;
use std::sync::LazyLock;

use crate::error::{Error, Result};
use crate::tensor::DType;
use crate::tile::Tile;

/// A device, described by numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    /// the name on the command line and in reports
    pub name: String,
    /// what it is, in one line
    pub doc: String,
    /// the sort of machine
    pub kind: Machine,
    /// element types that its kernels load, store and compute with
    pub dtypes: Vec<DType>,
    /// shapes of kernels that its code generator has
    pub skeletons: Vec<Skeleton>,
    /// sizes that a kernel must stay within or is divided by
    pub limits: Limits,
    /// what is paid by the piece
    pub costs: Costs,
    /// memories from the nearest to the farthest; at least two, and the last holds everything
    pub memory: Vec<MemoryLevel>,
    /// multiply-adds on vectors (two operations each) by element type
    pub vector: Rates,
    /// multiply-adds in matrix units by element type of the operands; a type without a row has no such unit
    pub matrix: Rates,
    /// special functions by element type, counted in values of exp
    pub special: Rates,
    /// sums of products as whole kernels reach them, by element type of the operands, where that was measured: tiles are loaded, asked
    /// for and stored beside the multiply-adds; without a row, what good code gets of the unit
    pub product: Rates,
    /// shapes of the contraction skeleton's blocks by element type of the operands, the largest first
    pub tiles: Vec<(DType, Vec<Tile>)>,
    /// the machine that holds the device
    pub host: Host,
}

/// Declares an enum whose variants have names in text.
macro_rules! words {
    ($(#[$meta:meta])* $Name:ident { $($Variant:ident $word:literal $doc:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $Name { $(#[doc = $doc] $Variant),+ }

        impl $Name {
            /// Every variant.
            pub const ALL: &'static [$Name] = &[$($Name::$Variant),+];

            /// The name in text forms.
            pub const fn name(self) -> &'static str { match self { $($Name::$Variant => $word),+ } }

            /// The variant with this name.
            pub fn from_name(name: &str) -> Option<$Name> {
                $Name::ALL.iter().copied().find(|v| v.name() == name)
            }
        }
    };
}

words! {
    /// The sort of machine, which decides what shares its units.
    Machine {
        Cpu "cpu" "special functions are programs of the vector units; a core runs one block at a time",
        Gpu "gpu" "special functions have units of their own; a core holds several blocks at a time",
    }
}

words! {
    /// A shape of kernels that a code generator may have.
    Skeleton {
        Map "map" "every element by itself",
        Row "row" "reductions along rows that a block owns",
        Column "column" "reductions across rows, in one or two phases",
        Contract "contract" "sums of products in blocks, with prologues and an epilogue",
        Attention "attention" "two contractions joined by a softmax",
        Host "host" "portable code on the host",
    }
}

words! {
    /// Who can read what lies in a memory.
    Scope {
        Core "core" "one core; every core has its own",
        Shared "shared" "all cores",
    }
}

/// Declares a struct of numbers that are keys of one section.
macro_rules! numbers {
    ($(#[$meta:meta])* $Name:ident { $($field:ident: $ty:ty, $doc:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $Name { $(#[doc = $doc] pub $field: $ty),+ }

        impl $Name {
            /// The names of the fields, which are the keys in text.
            pub(super) const KEYS: &'static [&'static str] = &[$(stringify!($field)),+];

            /// Every field as a number, in the order of the keys.
            pub(super) fn values(&self) -> Vec<f64> { vec![$(self.$field as f64),+] }

            /// From one number for each key.
            pub(super) fn from_values(values: &[f64]) -> $Name {
                let mut values = values.iter().copied();
                $Name { $($field: values.next().expect("a number for each key") as $ty),+ }
            }
        }
    };
}

numbers! {
    /// Sizes that a kernel must stay within or is divided by.
    Limits {
        cores: usize, "cores of a CPU, multiprocessors of a GPU";
        vector_bytes: usize, "bytes that one access of one thread moves at most";
        registers: usize, "registers that one thread may use";
        register_bytes: usize, "bytes of a register (of a vector register on a CPU)";
        register_file: usize, "registers that the threads of a core share";
        threads: usize, "threads that a core holds at a time";
        block_threads: usize, "threads of a block at most";
        blocks: usize, "blocks that a core holds at a time";
        fill_threads: usize, "threads that keep the arithmetic of a core busy";
        on_chip: usize, "bytes of on-chip memory that a block may use";
        core_on_chip: usize, "bytes of on-chip memory that the blocks of a core share";
        parameters: usize, "parameters of a kernel at most";
        row_in_registers: usize, "the longest row in bytes that a block keeps in registers";
        row_on_chip: usize, "the longest row in bytes that a block keeps on chip";
    }
}

numbers! {
    /// What is paid by the piece, in microseconds.
    Costs {
        launch_us: f64, "starting a kernel after another one";
        join_us: f64, "bringing all cores together: where a kernel of several blocks ends on a CPU, or at a barrier of the whole grid";
        barrier_us: f64, "bringing the threads (on a CPU the lanes) of one block together";
        block_us: f64, "from the start of a block until its first data are there";
    }
}

numbers! {
    /// The machine that holds the device, where host kernels run.
    Host {
        gbps: f64, "GB/s between host and device";
        round_trip_us: f64, "microseconds to hand over to the host and back; 0 where the device is the host";
        gops: f64, "billion simple operations a second of portable code";
    }
}

/// One memory of the hierarchy.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryLevel {
    /// its usual name: l1, l2, dram
    pub name: String,
    /// capacity; of each, where every core has its own
    pub bytes: usize,
    /// who can read it
    pub scope: Scope,
    /// whether the next kernel finds there what this one left
    pub keeps: bool,
    /// GB/s of all cores together
    pub gbps: f64,
    /// GB/s that one core can draw
    pub core_gbps: f64,
    /// the part of the rates that good code gets
    pub reach: f64,
    /// bytes that move together: shorter pieces cost as much
    pub line: usize,
    /// bytes that a core must have under way to draw its share; 0 where the hardware sees to it
    pub in_flight: usize,
}

impl MemoryLevel {
    /// Microseconds that bytes take at the rate that good code gets.
    pub fn us(&self, bytes: f64) -> f64 {
        bytes / (self.gbps * self.reach * 1e3)
    }
}

/// Billion operations a second by element type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// the part of the rates that good code gets
    pub reach: f64,
    /// peaks
    pub rows: Vec<(DType, f64)>,
}

impl Rates {
    /// Nothing is known.
    pub fn none() -> Rates {
        Rates { reach: 1.0, rows: Vec::new() }
    }

    /// The peak for exactly this type.
    pub fn peak(&self, dtype: DType) -> Option<f64> {
        self.rows.iter().find(|(d, _)| *d == dtype).map(|(_, rate)| *rate)
    }

    /// The peak with which a vector unit treats this type: its own row, else that of the float it is computed in.
    fn peak_or_wider(&self, dtype: DType) -> f64 {
        let wider = if dtype.bits() == 64 { DType::F64 } else { DType::F32 };
        self.peak(dtype).or_else(|| self.peak(wider)).or_else(|| self.peak(DType::F32)).unwrap_or(1.0)
    }
}

/// A unit of a device that does arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// multiply-adds on vectors, two operations each
    Fma(DType),
    /// multiply-adds in matrix units, two operations each; where a device has none, on vectors
    Matrix(DType),
    /// single operations on vectors
    Elementwise(DType),
    /// special functions, in values of exp
    Special(DType),
    /// portable code on the host
    Host,
}

impl Unit {
    /// The unit in a word.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Fma(_) => "multiply-adds",
            Unit::Matrix(_) => "matrix units",
            Unit::Elementwise(_) => "arithmetic",
            Unit::Special(_) => "special functions",
            Unit::Host => "host",
        }
    }

    /// The element type, where the unit has one.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Unit::Fma(d) | Unit::Matrix(d) | Unit::Elementwise(d) | Unit::Special(d) => Some(d),
            Unit::Host => None,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.dtype().map_or(Ok(()), |dtype| write!(f, " ({})", dtype.name()))
    }
}

/// The text of every spec that ships, in the order in which they are listed.
const SHIPPED: [&str; 5] = [
    include_str!("../../specs/cpu.spec"),
    include_str!("../../specs/avx2.spec"),
    include_str!("../../specs/a100.spec"),
    include_str!("../../specs/h100.spec"),
    include_str!("../../specs/h200.spec"),
];

static SPECS: LazyLock<Vec<DeviceSpec>> = LazyLock::new(|| {
    SHIPPED.iter().map(|text| DeviceSpec::parse(text).expect("what ships can be read, as a test makes sure")).collect()
});

impl DeviceSpec {
    /// Every spec that ships.
    pub fn all() -> &'static [DeviceSpec] {
        &SPECS
    }

    /// The names of the specs that ship.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DeviceSpec::all().iter().map(|spec| spec.name.as_str())
    }

    /// The shipped spec with this name.
    pub fn find(name: &str) -> Result<&'static DeviceSpec> {
        DeviceSpec::all().iter().find(|spec| spec.name == name).ok_or_else(|| {
            let names: Vec<&str> = DeviceSpec::names().collect();
            Error::invalid(format!("no device is called \"{name}\"; there are: {}", names.join(", ")))
        })
    }

    /// A number that is the same for equal specs, on every machine and in every version: FNV-1a over the printed text.
    pub fn fingerprint(&self) -> u64 {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        self.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, step)
    }

    /// Main memory: the farthest level.
    pub fn main_memory(&self) -> &MemoryLevel {
        self.memory.last().expect("a spec has at least two levels")
    }

    /// The last memory before main memory.
    pub fn last_cache(&self) -> &MemoryLevel {
        &self.memory[self.memory.len() - 2]
    }

    /// Whether kernels may load, store and compute with this type.
    pub fn has_dtype(&self, dtype: DType) -> bool {
        self.dtypes.contains(&dtype)
    }

    /// Whether the code generator has this shape of kernels.
    pub fn has_skeleton(&self, skeleton: Skeleton) -> bool {
        self.skeletons.contains(&skeleton)
    }

    /// Peak of a unit in billion operations a second; never zero.
    pub fn peak(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Fma(dtype) => self.vector.peak_or_wider(dtype),
            Unit::Matrix(dtype) => self.matrix.peak(dtype).unwrap_or_else(|| self.vector.peak_or_wider(dtype)),
            // A multiply-add counts as two operations and takes one slot, as any other operation does.
            Unit::Elementwise(dtype) => self.vector.peak_or_wider(dtype) / 2.0,
            Unit::Special(dtype) => self.special.peak_or_wider(dtype),
            Unit::Host => self.host.gops,
        }
    }

    /// What good code gets of a unit, in billion operations a second; never zero.
    pub fn rate(&self, unit: Unit) -> f64 {
        if let Some(reached) = self.product_rate(unit) {
            return reached;
        }
        let reach = match unit {
            Unit::Matrix(dtype) if self.matrix.peak(dtype).is_some() => self.matrix.reach,
            Unit::Fma(_) | Unit::Matrix(_) | Unit::Elementwise(_) => self.vector.reach,
            Unit::Special(_) => self.special.reach,
            Unit::Host => 1.0,
        };
        self.peak(unit) * reach
    }

    /// What whole products reach where it was measured. A type that vectors compute as another one reaches its part of that.
    fn product_rate(&self, unit: Unit) -> Option<f64> {
        let dtype = match unit {
            Unit::Fma(dtype) | Unit::Matrix(dtype) => dtype,
            _ => return None,
        };
        let on_vectors = self.matrix.peak(dtype).is_none() || matches!(unit, Unit::Fma(_));
        let like = |other: DType| {
            let reached = self.product.peak(other).filter(|_| on_vectors)?;
            Some(reached * self.vector.peak_or_wider(dtype) / self.vector.peak_or_wider(other))
        };
        self.product.peak(dtype).or_else(|| like(DType::F32))
    }

    /// The fastest unit for sums of products of this type.
    pub fn dot_unit(&self, dtype: DType) -> Unit {
        if self.matrix.peak(dtype).is_some() { Unit::Matrix(dtype) } else { Unit::Fma(dtype) }
    }

    /// Operations for each byte of main memory at which both take the same time: kernels below are memory-bound. From
    /// peaks, for sums of products of this type.
    pub fn balance(&self, dtype: DType) -> f64 {
        self.peak(self.dot_unit(dtype)) / self.main_memory().gbps
    }

    /// Shapes of the contraction skeleton's blocks for operands of this type, the largest first; those of f32 where the
    /// type has none. Never empty.
    pub fn tiles(&self, dtype: DType) -> &[Tile] {
        let of = |wanted: DType| self.tiles.iter().find(|(d, _)| *d == wanted).map(|(_, tiles)| tiles.as_slice());
        of(dtype).or_else(|| of(DType::F32)).expect("a spec has tiles for f32")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spec_that_ships_is_read_back_as_printed() {
        for (text, spec) in SHIPPED.iter().zip(DeviceSpec::all()) {
            let printed = spec.to_string();
            assert_eq!(&DeviceSpec::parse(&printed).unwrap(), spec);
            assert_eq!(DeviceSpec::parse(&printed).unwrap().to_string(), printed);
            assert!(text.contains(&format!("name = {}", spec.name)));
            assert_eq!(DeviceSpec::find(&spec.name).unwrap(), spec);
        }
        assert_eq!(DeviceSpec::names().collect::<Vec<_>>(), ["cpu", "avx2", "a100", "h100", "h200"]);
        let unknown = DeviceSpec::find("h300").unwrap_err();
        assert_eq!(unknown.message(), "no device is called \"h300\"; there are: cpu, avx2, a100, h100, h200");
    }

    #[test]
    fn fingerprints_tell_specs_apart_and_ignore_comments() {
        let h200 = DeviceSpec::find("h200").unwrap();
        assert_eq!(DeviceSpec::parse(&format!("# mine\n{h200}")).unwrap().fingerprint(), h200.fingerprint());
        let mut faster = h200.clone();
        faster.memory[2].gbps += 1.0;
        assert_ne!(faster.fingerprint(), h200.fingerprint());
        let mut all: Vec<u64> = DeviceSpec::all().iter().map(DeviceSpec::fingerprint).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), DeviceSpec::all().len());
    }

    #[test]
    fn balances_are_those_of_the_data_sheets() {
        // 312 TFLOP/s over 2.04 TB/s; 989 over 3.35; f32 products on an H100 have no matrix unit: 66.9 over 3.35.
        let balance = |name: &str, dtype| DeviceSpec::find(name).unwrap().balance(dtype).round();
        assert_eq!(balance("a100", DType::F16), 153.0);
        assert_eq!(balance("h100", DType::BF16), 295.0);
        assert_eq!(balance("h100", DType::F32), 20.0);
    }

    #[test]
    fn memories_grow_and_slow_down_with_distance() {
        for spec in DeviceSpec::all() {
            for pair in spec.memory.windows(2) {
                assert!(pair[0].bytes < pair[1].bytes, "{}", spec.name);
                assert!(pair[0].gbps * pair[0].reach > pair[1].gbps * pair[1].reach, "{}", spec.name);
                assert!(pair.iter().all(|level| level.core_gbps <= level.gbps), "{}", spec.name);
            }
            assert!(spec.dtypes.iter().all(|d| spec.rate(Unit::Elementwise(*d)) > 0.0), "{}", spec.name);
        }
    }

    #[test]
    fn types_without_a_row_are_computed_in_the_next_wider_float() {
        let cpu = DeviceSpec::find("cpu").unwrap();
        assert_eq!(cpu.peak(Unit::Fma(DType::F16)), cpu.peak(Unit::Fma(DType::F32)));
        assert_eq!(cpu.peak(Unit::Fma(DType::I64)), cpu.peak(Unit::Fma(DType::F64)));
        assert_eq!(cpu.dot_unit(DType::BF16), Unit::Matrix(DType::BF16));
        assert_eq!(cpu.dot_unit(DType::F32), Unit::Fma(DType::F32));
        assert_eq!(cpu.rate(Unit::Matrix(DType::F32)), cpu.rate(Unit::Fma(DType::F32)));
        assert_eq!(cpu.tiles(DType::F16), cpu.tiles(DType::F32));
    }
}
