//! NVIDIA's library of matrix products, looked for when it is asked for.
#![allow(unsafe_code, reason = "functions of a library that is loaded at run time")]

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fuseline::error::{Error, Result};
use fuseline::tensor::DType;
use libloading::Library;
use rustc_hash::FxHashMap;

use crate::gpu::Gpu;
use crate::memory::Block;
use crate::print::Activation;

/// Names under which the library may be found.
const NAMES: &[&str] = &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"];

/// Bytes that a product may use beside its operands.
const WORKSPACE: usize = 32 << 20;

/// Ways to compute a product that the library is asked for.
const MOST_WAYS: usize = 16;

/// The library's number for tiles of 128 × 128.
const SQUARE_TILES: u32 = 20;

/// Results from which on there are enough such tiles, and steps up to which they pay: larger ones read less.
const MANY_RESULTS: i64 = 1 << 20;
const MOST_STEPS: i64 = 4096;

/// What places of values are multiples of.
pub(crate) const ALIGNMENT: u32 = 64;

type Status = c_int;
type Handle = *mut c_void;

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($ty:ty),*);)+) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($ty),*) -> Status,)+
            // Dropped last: the functions point into it.
            _library: Library,
        }

        impl Functions {
            /// # Safety
            ///
            /// The library must be cuBLASLt.
            unsafe fn of(library: Library) -> std::result::Result<Functions, libloading::Error> {
                // SAFETY: the types are those of cublasLt.h.
                unsafe { Ok(Functions { $($name: *library.get($symbol)?,)+ _library: library }) }
            }
        }
    };
}

functions! {
    create = b"cublasLtCreate" (*mut Handle);
    destroy = b"cublasLtDestroy" (Handle);
    description_create = b"cublasLtMatmulDescCreate" (*mut Handle, c_int, c_int);
    description_destroy = b"cublasLtMatmulDescDestroy" (Handle);
    description_set = b"cublasLtMatmulDescSetAttribute" (Handle, c_int, *const c_void, usize);
    layout_create = b"cublasLtMatrixLayoutCreate" (*mut Handle, c_int, u64, u64, i64);
    layout_destroy = b"cublasLtMatrixLayoutDestroy" (Handle);
    layout_set = b"cublasLtMatrixLayoutSetAttribute" (Handle, c_int, *const c_void, usize);
    preference_create = b"cublasLtMatmulPreferenceCreate" (*mut Handle);
    preference_destroy = b"cublasLtMatmulPreferenceDestroy" (Handle);
    preference_set = b"cublasLtMatmulPreferenceSetAttribute" (Handle, c_int, *const c_void, usize);
    way_get = b"cublasLtMatmulAlgoConfigGetAttribute" (*const [u64; 8], c_int, *mut c_void, usize, *mut usize);
    heuristic = b"cublasLtMatmulAlgoGetHeuristic" (Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Found, *mut c_int);
    matmul = b"cublasLtMatmul" (Handle, Handle, *const c_void, *const c_void, Handle, *const c_void, Handle, *const c_void, *const c_void, Handle, *mut c_void, Handle, *const [u64; 8], *mut c_void, usize, Handle);
}

/// A way to compute a product, as the library describes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    algorithm: [u64; 8],
    workspace: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

/// A product of row-major matrices, maybe many of them: `d = f(a · b + c + bias)`, where a factor may be given turned about, and neither what
/// is added nor the function need be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub rows: i64,
    pub columns: i64,
    pub steps: i64,
    pub batches: i64,
    /// elements between the rows of a factor as it lies in memory, and whether it is turned about: the left one's rows are steps then, the
    /// right one's columns
    pub a: (i64, bool),
    pub b: (i64, bool),
    /// elements between rows of the result
    pub d: i64,
    /// elements between the matrices of a batch
    pub strides: [i64; 3],
    /// the type of the factors, and that of the result
    pub dtypes: (DType, DType),
    /// whether a number for every column is added
    pub has_bias: bool,
    /// what all places are multiples of, in bytes
    pub alignment: u32,
    /// elements between rows, and between matrices, of what is added
    pub c: Option<(i64, i64)>,
    /// what is done with the sum
    pub activation: Option<Activation>,
}

impl Shape {
    /// What comes behind the product, as the library's number; a number for every row of the library's is one for every column of ours.
    fn epilogue(&self) -> c_int {
        let bias = if self.has_bias { 4 } else { 0 };
        match self.activation {
            None => bias.max(1),
            Some(Activation::Relu) => 2 + bias,
            Some(Activation::GeluTanh) => 32 + bias,
        }
    }

    /// Whether what comes behind the product takes so long that the library's choice is not the best: with the larger tiles that it prefers GELU takes about
    /// 5 µs of 56, with these 1.
    fn wants_square_tiles(&self) -> bool {
        let are_many = self.rows.saturating_mul(self.columns) >= MANY_RESULTS;
        self.activation == Some(Activation::GeluTanh) && are_many && self.steps <= MOST_STEPS
    }
}

/// Where the matrices of a product lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub a: u64,
    pub b: u64,
    pub c: Option<u64>,
    pub d: u64,
    pub bias: Option<u64>,
}

/// The library on a GPU.
pub(crate) struct Cublas {
    functions: Functions,
    handle: Handle,
    workspace: Block,
    gpu: Arc<Gpu>,
    /// products that were asked for before
    known: Mutex<FxHashMap<Shape, Arc<Prepared>>>,
    /// held where a description is changed and asked for
    asking: Mutex<()>,
    path: PathBuf,
}

// SAFETY: the library may be called from any thread; what is kept beside it is locked or never changed.
unsafe impl Send for Cublas {}
// SAFETY: as above.
unsafe impl Sync for Cublas {}

impl std::fmt::Debug for Cublas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuBLASLt ({})", self.path.display())
    }
}

/// A product that can be asked for.
struct Prepared {
    description: Handle,
    /// of the library's left and right factor, of what is added, and of the result
    layouts: [Handle; 4],
    /// ways to compute it, the one that the library thinks best first
    ways: Vec<[u64; 8]>,
    /// the one that is taken where none was measured
    usual: usize,
}

// SAFETY: handles of the library, which may be used from any thread and are never changed.
unsafe impl Send for Prepared {}
// SAFETY: as above.
unsafe impl Sync for Prepared {}

mod attribute {
    use std::ffi::c_int;
    pub const TURN_A: c_int = 3;
    pub const TURN_B: c_int = 4;
    pub const EPILOGUE: c_int = 7;
    pub const BIAS: c_int = 8;
    pub const BATCHES: c_int = 5;
    pub const BATCH_STRIDE: c_int = 6;
    pub const MOST_WORKSPACE: c_int = 1;
    pub const LEAST_ALIGNMENT: [c_int; 4] = [5, 6, 7, 8];
    pub const TILE: c_int = 1;
}

/// Products are summed in f32.
const COMPUTE_F32: c_int = 68;

fn type_number(dtype: DType) -> Option<c_int> {
    Some(match dtype {
        DType::F32 => 0,
        DType::F16 => 2,
        DType::BF16 => 14,
        _ => return None,
    })
}

/// Where the library is, in these folders or where the system has libraries.
pub fn locate(folders: &[PathBuf]) -> Result<PathBuf> {
    // SAFETY: the library does nothing when it is loaded that could go wrong here.
    let found = candidates(folders).find(|path| unsafe { Library::new(path) }.is_ok());
    found.ok_or_else(|| {
        let help = "pip install nvidia-cublas, or name its folder in FUSELINE_CUDA_LIBRARIES";
        Error::unsupported(format!("no libcublasLt: large products are computed by kernels of our own ({help})"))
    })
}

fn candidates(folders: &[PathBuf]) -> impl Iterator<Item = PathBuf> + '_ {
    let in_folders = folders.iter().flat_map(|folder| NAMES.iter().map(move |name| folder.join(name)));
    in_folders.chain(NAMES.iter().map(PathBuf::from))
}

impl Cublas {
    /// The library, looked for in these folders and then where the system has libraries; none where it is not there.
    pub fn find(gpu: &Arc<Gpu>, folders: &[PathBuf]) -> Option<Cublas> {
        for path in candidates(folders) {
            // SAFETY: the library does nothing when it is loaded that could go wrong here.
            let Ok(library) = (unsafe { Library::new(&path) }) else { continue };
            // SAFETY: it is called as cuBLASLt is.
            let Ok(functions) = (unsafe { Functions::of(library) }) else { continue };
            return Cublas::open(gpu, functions, &path).ok();
        }
        None
    }

    fn open(gpu: &Arc<Gpu>, functions: Functions, path: &Path) -> Result<Cublas> {
        let workspace = gpu.take(WORKSPACE)?;
        gpu.make_current()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a place for a handle; the device is current.
        check(unsafe { (functions.create)(&mut handle) }, "starting the library")?;
        let (known, asking) = (Mutex::default(), Mutex::default());
        Ok(Cublas { functions, handle, workspace, gpu: gpu.clone(), known, asking, path: path.to_owned() })
    }

    /// How many ways the library has to compute a product.
    pub fn ways(&self, shape: &Shape) -> usize {
        self.prepared(shape).map_or(0, |prepared| prepared.ways.len())
    }

    /// The way in which a product is computed where none is asked for.
    pub fn usual_way(&self, shape: &Shape) -> usize {
        self.prepared(shape).map_or(0, |prepared| prepared.usual)
    }

    /// Asks for a product on the device's stream, by the way with a number, or the last where there are fewer; by the usual one where none is given.
    ///
    /// # Safety
    ///
    /// The places must be memory of the device that is as large as the shape says.
    pub unsafe fn multiply(&self, shape: &Shape, places: Places, way: Option<usize>) -> Result<()> {
        let prepared = self.prepared(shape)?;
        self.gpu.make_current()?;
        let (one, of_c) = (1.0f32, if places.c.is_some() { 1.0f32 } else { 0.0 });
        let [left, right, added, result] = prepared.layouts;
        let way = &prepared.ways[way.unwrap_or(prepared.usual).min(prepared.ways.len() - 1)];
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bias) = places.bias {
            self.set_bias(prepared.description, bias)?;
        }
        let pointer = |at: u64| at as *mut c_void;
        // SAFETY: handles of the library; matrices as the caller promises. The library's columns are our rows, so that the factors
        // change sides.
        let status = unsafe {
            (self.functions.matmul)(
                self.handle,
                prepared.description,
                std::ptr::from_ref(&one).cast(),
                pointer(places.b),
                left,
                pointer(places.a),
                right,
                std::ptr::from_ref(&of_c).cast(),
                pointer(places.c.unwrap_or(places.d)),
                added,
                pointer(places.d),
                result,
                way,
                pointer(self.workspace.at()),
                self.workspace.bytes(),
                self.gpu.stream(),
            )
        };
        check(status, "a product of matrices")
    }

    fn set_bias(&self, description: Handle, at: u64) -> Result<()> {
        // SAFETY: a handle of the library; the attribute is a pointer.
        let status = unsafe {
            (self.functions.description_set)(description, attribute::BIAS, std::ptr::from_ref(&at).cast(), 8)
        };
        check(status, "adding a bias")
    }

    fn prepared(&self, shape: &Shape) -> Result<Arc<Prepared>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = known.get(shape) {
            return Ok(prepared.clone());
        }
        let prepared = Arc::new(self.prepare(shape)?);
        known.insert(*shape, prepared.clone());
        Ok(prepared)
    }

    fn prepare(&self, shape: &Shape) -> Result<Prepared> {
        let number = |dtype| type_number(dtype).ok_or_else(|| Error::unsupported(format!("products of {dtype}")));
        let (factors, result) = (number(shape.dtypes.0)?, number(shape.dtypes.1)?);
        self.gpu.make_current()?;
        let f = &self.functions;
        let mut description = std::ptr::null_mut();
        // SAFETY: a place for a handle.
        check(unsafe { (f.description_create)(&mut description, COMPUTE_F32, 0) }, "describing a product")?;
        let mut prepared = Prepared { description, layouts: [std::ptr::null_mut(); 4], ways: Vec::new(), usual: 0 };
        // The library's matrices lie column by column: ours are turned about, and change sides.
        let (a_pitch, a_turned) = shape.a;
        let (b_pitch, b_turned) = shape.b;
        for (attribute, turned) in [(attribute::TURN_A, b_turned), (attribute::TURN_B, a_turned)] {
            let turn = c_int::from(turned);
            // SAFETY: a number of four bytes is what these attributes are.
            let status = unsafe { (f.description_set)(description, attribute, std::ptr::from_ref(&turn).cast(), 4) };
            check(status, "turning a factor about")?;
        }
        let epilogue = shape.epilogue();
        // SAFETY: a number of four bytes is what this attribute is.
        let status =
            unsafe { (f.description_set)(description, attribute::EPILOGUE, std::ptr::from_ref(&epilogue).cast(), 4) };
        check(status, "what comes behind a product")?;
        if shape.has_bias {
            // Some place, so that there is one where ways are looked for.
            self.set_bias(description, self.workspace.at())?;
        }
        let sides = |along: i64, across: i64, turned: bool| if turned { (across, along) } else { (along, across) };
        let (left, right) = (sides(shape.columns, shape.steps, b_turned), sides(shape.steps, shape.rows, a_turned));
        let added = shape.c.unwrap_or((shape.d, shape.strides[2]));
        let parts = [
            (factors, left, b_pitch, shape.strides[1]),
            (factors, right, a_pitch, shape.strides[0]),
            (result, (shape.columns, shape.rows), added.0, added.1),
            (result, (shape.columns, shape.rows), shape.d, shape.strides[2]),
        ];
        for (layout, (dtype, (rows, columns), pitch, stride)) in prepared.layouts.iter_mut().zip(parts) {
            let batches = shape.batches as c_int;
            // SAFETY: a place for a handle; numbers of the sizes that these attributes have.
            unsafe {
                check((f.layout_create)(layout, dtype, rows as u64, columns as u64, pitch), "describing a matrix")?;
                let set = |attribute, value: *const c_void, size| {
                    check((f.layout_set)(*layout, attribute, value, size), "describing matrices")
                };
                set(attribute::BATCHES, std::ptr::from_ref(&batches).cast(), 4)?;
                set(attribute::BATCH_STRIDE, std::ptr::from_ref(&stride).cast(), 8)?;
            }
        }
        prepared.ways = self.best(&prepared, shape.alignment)?;
        if shape.wants_square_tiles() && self.gpu.description.capability.0 == 9 {
            let square = prepared.ways.iter().position(|way| self.tile(way) == Some(SQUARE_TILES));
            prepared.usual = square.unwrap_or(0);
        }
        Ok(prepared)
    }

    /// The library's number for the tiles of a way.
    fn tile(&self, way: &[u64; 8]) -> Option<u32> {
        let (mut tile, mut bytes) = (0u32, 0usize);
        // SAFETY: a way that the library described, and places for a number of four bytes and for how many were written.
        let status = unsafe {
            let place = std::ptr::from_mut(&mut tile).cast();
            (self.functions.way_get)(way, attribute::TILE, place, size_of::<u32>(), &mut bytes)
        };
        (status == 0 && bytes == size_of::<u32>()).then_some(tile)
    }

    /// The ways that the library thinks best; there is one at least.
    fn best(&self, prepared: &Prepared, alignment: u32) -> Result<Vec<[u64; 8]>> {
        let f = &self.functions;
        let (mut preference, mut found, mut count) = (std::ptr::null_mut(), [Found::default(); MOST_WAYS], 0);
        let [left, right, added, result] = prepared.layouts;
        let bytes = self.workspace.bytes();
        // SAFETY: places for a handle, a result and a number; handles of the library.
        unsafe {
            check((f.preference_create)(&mut preference), "asking for a way")?;
            let value = std::ptr::from_ref(&bytes).cast();
            let set = (f.preference_set)(preference, attribute::MOST_WORKSPACE, value, size_of::<usize>());
            for attribute in attribute::LEAST_ALIGNMENT {
                (f.preference_set)(preference, attribute, std::ptr::from_ref(&alignment).cast(), size_of::<u32>());
            }
            let description = prepared.description;
            let asked = (f.heuristic)(
                self.handle,
                description,
                left,
                right,
                added,
                result,
                preference,
                MOST_WAYS as c_int,
                found.as_mut_ptr(),
                &mut count,
            );
            (f.preference_destroy)(preference);
            check(set, "limiting memory")?;
            check(asked, "asking for a way")?;
        }
        let found = found.iter().take(usize::try_from(count).unwrap_or(0)).filter(|found| found.state == 0);
        let ways: Vec<[u64; 8]> = found.map(|found| found.algorithm).collect();
        match ways.is_empty() {
            true => Err(Error::unsupported("a product that the library has no way for")),
            false => Ok(ways),
        }
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        let known = std::mem::take(&mut *self.known.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: all was made by the library, and nothing uses it any more.
        unsafe {
            for prepared in known.values() {
                prepared.layouts.iter().for_each(|layout| {
                    (self.functions.layout_destroy)(*layout);
                });
                (self.functions.description_destroy)(prepared.description);
            }
            (self.functions.destroy)(self.handle);
        }
    }
}

fn check(status: Status, what: &str) -> Result<()> {
    match status {
        0 => Ok(()),
        // Not supported, or no such architecture.
        8 | 15 => Err(Error::unsupported(format!("cuBLASLt: {what}: status {status}"))),
        _ => Err(Error::bug(format!("cuBLASLt: {what}: status {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gelu_wants_square_tiles_behind_sums_that_are_not_long() {
        let wants = |rows: i64, steps: i64, activation: Option<Activation>| {
            let shape = Shape {
                rows,
                columns: 4096,
                steps,
                batches: 1,
                a: (steps, false),
                b: (4096, false),
                d: 4096,
                strides: [0; 3],
                dtypes: (DType::BF16, DType::BF16),
                has_bias: true,
                alignment: ALIGNMENT,
                c: None,
                activation,
            };
            shape.wants_square_tiles()
        };
        let gelu = Some(Activation::GeluTanh);
        assert!(wants(4096, 1024, gelu) && wants(256, 4096, gelu));
        assert!(!wants(4096, 8192, gelu) && !wants(128, 4096, gelu));
        assert!(!wants(4096, 1024, None) && !wants(4096, 1024, Some(Activation::Relu)));
    }
}
