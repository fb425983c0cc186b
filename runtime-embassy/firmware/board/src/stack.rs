//! How deep the stack has been: it is painted before the program starts, and what is no longer paint was used.
use cortex_m_rt::STACK_PAINT_VALUE;

unsafe extern "C" {
    /// Where the stack starts, at the high end.
    static _stack_start: u32;
    /// Where it must not get below.
    static _stack_end: u32;
}

/// Bytes of stack that have ever been used; interrupts, which run on the same stack, are among them.
///
/// Cost: reads the unused part of the stack.
pub fn used_bytes() -> usize {
    let (top, bottom) = (&raw const _stack_start, &raw const _stack_end);
    let mut word = bottom;
    // SAFETY: within the linker's region for the stack, which is aligned memory of the board; nothing but paint is looked for in it.
    while word < top && unsafe { word.read_volatile() } == STACK_PAINT_VALUE {
        word = word.wrapping_add(1);
    }
    top as usize - word as usize
}

/// Bytes of stack that there are.
pub fn size_bytes() -> usize {
    let (top, bottom) = (&raw const _stack_start, &raw const _stack_end);
    top as usize - bottom as usize
}
