//! One memory-mapped register of 32 bits.

/// The address of a device register. Reads and writes have effects only in the device.
#[derive(Clone, Copy)]
pub(crate) struct Register(usize);

impl Register {
    /// # Safety
    ///
    /// `address` must be that of a 32-bit device register of the board, and no access to the
    /// register may affect memory.
    pub(crate) const unsafe fn at(address: usize) -> Self {
        Self(address)
    }

    pub(crate) fn read(self) -> u32 {
        // SAFETY: a device register, by the contract of `at`.
        unsafe { (self.0 as *const u32).read_volatile() }
    }

    pub(crate) fn write(self, value: u32) {
        // SAFETY: a device register, by the contract of `at`.
        unsafe { (self.0 as *mut u32).write_volatile(value) }
    }
}
