//! NVIDIA's run-time compiler: CUDA C++ to machine code, in this process. The library is looked for when it is asked for.
#![allow(unsafe_code, reason = "functions of a library that is loaded at run time")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use fuseline::error::{Error, Result};
use libloading::Library;

/// Names under which the system may have the library, the newest first.
const NAMES: &[&str] = &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// The compiler.
pub struct Compiler {
    functions: Functions,
    version: (i32, i32),
    /// where it was found
    path: PathBuf,
    // Dropped last: the functions point into it.
    _library: Library,
}

/// Machine code for one architecture.
#[derive(Clone, Debug)]
pub struct Cubin {
    /// what the driver loads
    pub bytes: Vec<u8>,
    /// what the compiler and the assembler said: warnings, registers, spills
    pub log: String,
}

type Program = *mut c_void;
type Status = c_int;

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($ty:ty),*) -> $result:ty;)+) => {
        /// The functions of the library that are used.
        struct Functions { $($field: unsafe extern "C" fn($($ty),*) -> $result),+ }

        impl Functions {
            /// # Safety
            ///
            /// The library must be NVRTC, and outlive what is returned.
            unsafe fn find(library: &Library) -> std::result::Result<Functions, libloading::Error> {
                // SAFETY: the types are those of nvrtc.h.
                unsafe { Ok(Functions { $($field: *library.get($symbol)?),+ }) }
            }
        }
    };
}

functions! {
    version = b"nvrtcVersion": fn(*mut c_int, *mut c_int) -> Status;
    error_string = b"nvrtcGetErrorString": fn(Status) -> *const c_char;
    create = b"nvrtcCreateProgram": fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> Status;
    destroy = b"nvrtcDestroyProgram": fn(*mut Program) -> Status;
    compile = b"nvrtcCompileProgram": fn(Program, c_int, *const *const c_char) -> Status;
    cubin_size = b"nvrtcGetCUBINSize": fn(Program, *mut usize) -> Status;
    cubin = b"nvrtcGetCUBIN": fn(Program, *mut c_char) -> Status;
    ptx_size = b"nvrtcGetPTXSize": fn(Program, *mut usize) -> Status;
    ptx = b"nvrtcGetPTX": fn(Program, *mut c_char) -> Status;
    log_size = b"nvrtcGetProgramLogSize": fn(Program, *mut usize) -> Status;
    log = b"nvrtcGetProgramLog": fn(Program, *mut c_char) -> Status;
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NVRTC {}.{} ({})", self.version.0, self.version.1, self.path.display())
    }
}

impl Compiler {
    /// The compiler, in one of these folders or where the system looks for libraries.
    pub fn find(folders: &[PathBuf]) -> Result<Compiler> {
        let in_folders = folders.iter().flat_map(|folder| NAMES.iter().map(|name| folder.join(name)));
        let candidates = in_folders.filter(|path| path.is_file()).chain(NAMES.iter().map(PathBuf::from));
        let mut reason = String::new();
        for path in candidates {
            match Compiler::open(&path) {
                Ok(compiler) => return Ok(compiler),
                Err(error) if reason.is_empty() => reason = error,
                Err(_) => {}
            }
        }
        let help = "install it with `pip install nvidia-cuda-nvrtc` or as part of the CUDA toolkit";
        Err(Error::unsupported(format!("NVRTC, which compiles kernels, is not there ({reason}); {help}")))
    }

    fn open(path: &Path) -> std::result::Result<Compiler, String> {
        // SAFETY: NVRTC does nothing when it is loaded that could go wrong here.
        let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
        // SAFETY: it is called NVRTC, and is kept.
        let functions = unsafe { Functions::find(&library) }.map_err(|error| error.to_string())?;
        let mut version = (0, 0);
        // SAFETY: both are places for an integer.
        let status = unsafe { (functions.version)(&mut version.0, &mut version.1) };
        if status != 0 {
            return Err(format!("{} does not say its version", path.display()));
        }
        Ok(Compiler { functions, version, path: path.to_owned(), _library: library })
    }

    /// Its version, as of the CUDA toolkit.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Where it was found: the name by which the system knows it, or a file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Compiles a text for an architecture such as `sm_90a`. `is_strict`: products and sums are rounded apart.
    pub fn compile(&self, source: &str, name: &str, architecture: &str, is_strict: bool) -> Result<Cubin> {
        let (program, log) = self.translate(source, name, architecture, is_strict)?;
        let f = &self.functions;
        let mut size = 0;
        // SAFETY: a place for a size.
        self.check(unsafe { (f.cubin_size)(program.program, &mut size) }, "the size of the machine code")?;
        let mut bytes = vec![0u8; size];
        // SAFETY: there is as much room as was asked for.
        self.check(unsafe { (f.cubin)(program.program, bytes.as_mut_ptr().cast()) }, "the machine code")?;
        Ok(Cubin { bytes, log })
    }

    /// A text as PTX, for an architecture such as `compute_90a`.
    pub fn ptx(&self, source: &str, name: &str, architecture: &str, is_strict: bool) -> Result<String> {
        let (program, _) = self.translate(source, name, architecture, is_strict)?;
        let f = &self.functions;
        let mut size = 0;
        // SAFETY: a place for a size.
        self.check(unsafe { (f.ptx_size)(program.program, &mut size) }, "the size of the PTX")?;
        let mut bytes = vec![0u8; size.max(1)];
        // SAFETY: there is as much room as was asked for.
        self.check(unsafe { (f.ptx)(program.program, bytes.as_mut_ptr().cast()) }, "the PTX")?;
        Ok(CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned())
    }

    /// Compiles a text, and gives what the compiler said.
    fn translate(&self, source: &str, name: &str, architecture: &str, is_strict: bool) -> Result<(Held<'_>, String)> {
        let text = |text: &str| CString::new(text).map_err(|_| Error::bug("a text with a zero byte"));
        let (source, file) = (text(source)?, text(&format!("{name}.cu"))?);
        let contract = if is_strict { "--fmad=false" } else { "--fmad=true" };
        let options = [
            format!("--gpu-architecture={architecture}"),
            "--std=c++17".to_owned(),
            // What is written inside of a kernel runs where the kernel does.
            "--device-as-default-execution-space".to_owned(),
            contract.to_owned(),
            "--ptxas-options=--verbose".to_owned(),
        ];
        let options = options.iter().map(|option| text(option)).collect::<Result<Vec<CString>>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = std::ptr::null_mut();
        let f = &self.functions;
        // SAFETY: the texts end with a zero byte and outlive the call, and there are no headers.
        let status =
            unsafe { (f.create)(&mut program, source.as_ptr(), file.as_ptr(), 0, std::ptr::null(), std::ptr::null()) };
        self.check(status, "creating a program")?;
        let program = Held { program, functions: f };
        // SAFETY: there are as many options as are said, and all end with a zero byte.
        let status = unsafe { (f.compile)(program.program, options.len() as c_int, options.as_ptr()) };
        let log = self.log(&program)?;
        if status != 0 {
            let why = log.trim();
            return Err(Error::bug(format!("NVRTC refuses the kernel {name} for {architecture}:\n{why}")));
        }
        Ok((program, log))
    }

    fn log(&self, program: &Held<'_>) -> Result<String> {
        let mut size = 0;
        // SAFETY: a place for a size.
        self.check(unsafe { (self.functions.log_size)(program.program, &mut size) }, "the size of the log")?;
        let mut bytes = vec![0u8; size.max(1)];
        // SAFETY: there is as much room as was asked for.
        self.check(unsafe { (self.functions.log)(program.program, bytes.as_mut_ptr().cast()) }, "the log")?;
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    fn check(&self, status: Status, what: &str) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library gives a constant text for every status.
        let text = unsafe { CStr::from_ptr((self.functions.error_string)(status)) };
        Err(Error::bug(format!("NVRTC: {what}: {}", text.to_string_lossy())))
    }
}

/// A program that is destroyed when it is dropped.
struct Held<'a> {
    program: Program,
    functions: &'a Functions,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // SAFETY: it was created and nobody else has it.
        unsafe { (self.functions.destroy)(&mut self.program) };
    }
}
