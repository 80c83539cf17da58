//! Whether tiles may be used.
#![allow(unsafe_code, reason = "the system is asked by its own instruction")]

use std::sync::OnceLock;

/// Whether the processor has tiles of bf16 and the system lets this process use them, which it is asked once.
pub fn has_tiles() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| processor_has_tiles() && ask_for_tiles())
}

fn processor_has_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const BF16: u32 = 1 << 22;
    const TILE: u32 = 1 << 24;
    if __cpuid(0).eax < 7 {
        return false;
    }
    // Their factors are rounded by vectors.
    const VECTORS_BF16: u32 = 1 << 5;
    let rounds = __cpuid_count(7, 1).eax & VECTORS_BF16 != 0;
    rounds && __cpuid_count(7, 0).edx & (BF16 | TILE) == BF16 | TILE
}

/// Asks Linux for the state of tiles; the permission is the process's, threads that are there already included.
#[cfg(target_os = "linux")]
fn ask_for_tiles() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: i64 = 0x1023;
    const TILE_DATA: i64 = 18;
    let result: i64;
    // SAFETY: the call takes two numbers and changes no memory of ours.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// Elsewhere nobody knows how to ask.
#[cfg(not(target_os = "linux"))]
fn ask_for_tiles() -> bool {
    false
}
