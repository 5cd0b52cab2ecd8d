"""The closed list of diagnostic kinds. Codes: E10xx shapes and types, E11xx views, E12xx index expressions,
E13xx symbols and sizes, E14xx regions, E15xx plans and targets, E16xx graphs and documents, E17xx files and
environment, E18xx execution; W2xxx warnings. A code is never reused; E1102 is retired and reserved."""

from __future__ import annotations

import msgspec


class Kind(msgspec.Struct, frozen=True):
    """An entry of the table: a code, and the title that docs/diagnostics.md prints."""

    code: str
    title: str


TABLE: dict[str, Kind] = {
    # shapes and types
    "BroadcastMismatch": Kind("E1001", "two operands have different shapes and no rule joins them"),
    "AxisSizeMismatch": Kind("E1002", "a reshape or view does not preserve the number of elements"),
    "InvalidPermutation": Kind("E1003", "a permutation repeats or leaves out an axis"),
    "AccDtypeMissing": Kind("E1004", "a reduce has no accumulation dtype"),
    "AmbiguousAxis": Kind("E1005", "a size symbol names more than one axis"),
    "DTypeMismatch": Kind("E1006", "operands of one op have different dtypes"),
    "UnsupportedDType": Kind("E1007", "an op is not defined for this dtype"),
    "AxisOutOfRange": Kind("E1008", "an axis does not exist or is named twice"),
    "InvalidAttribute": Kind("E1009", "an attribute is missing, unknown or has an illegal value"),
    "UnknownDType": Kind("E1010", "a dtype was never decided"),
    # views
    "NegativeStrideUnsupported": Kind("E1102", "retired: FLIP expresses negative strides"),
    "NonAffineView": Kind("E1103", "an index map is not affine with floordiv"),
    # index expressions
    "MissingDivGuard": Kind("E1203", "an index expression keeps %, or divides by a number that is not positive"),
    "IndexSyntax": Kind("E1204", "an index expression cannot be read"),
    # symbols and sizes
    "UnboundSymbol": Kind("E1301", "a size symbol has no value"),
    "AxisAlignmentMismatch": Kind("E1304", "two sizes that have to be equal differ"),
    "InvalidSymbol": Kind("E1305", "a size symbol has an illegal name or value"),
    # regions
    "UnguardedAccess": Kind("E1401", "a read may leave its tensor and no guard stands before it"),
    "NonAssociativeTransform": Kind("E1402", "a rewrite would change the order of rounding"),
    "NeutralInvalid": Kind("E1403", "a guarded reduce yields something else than the neutral element"),
    "InvalidRegion": Kind("E1404", "a Region breaks an invariant of its form"),
    # plans and targets
    "InvalidPlan": Kind("E1501", "a plan breaks a rule of its kind"),
    "ResourceExceeded": Kind("E1502", "a plan needs more shared memory, registers or threads than the target has"),
    "LayoutMismatch": Kind("E1503", "alignment or layout of a buffer is not what the kernel needs"),
    "UnknownTarget": Kind("E1504", "the target is unknown or cannot run here"),
    "StaleDecision": Kind("W2502", "a decision names a Region that does not occur"),
    "UnusedLayout": Kind("W2503", "a layout says how a tile lies, and the kernel has no such tile"),
    "PrecisionKept": Kind("W2504", "the target computes nothing faster at a precision, and keeps fp32"),
    "TokenHazard": Kind("E1505", "an asynchronous read, write or wait is not ordered"),
    # graphs and documents
    "UnknownOp": Kind("E1601", "an operation does not exist"),
    "UnknownValue": Kind("E1602", "a name is used but never defined"),
    "DuplicateId": Kind("E1603", "a name is defined twice"),
    "CyclicGraph": Kind("E1604", "values depend on each other in a circle"),
    "InvalidDocument": Kind("E1605", "a document does not have the form of its stage"),
    "UnsupportedModel": Kind("E1606", "the model uses operators that are not supported"),
    "RecursionDepth": Kind("E1607", "subgraphs call each other more than 10 deep"),
    "UnknownFormat": Kind("E1608", "the kind of file is not known"),
    "ParseError": Kind("E1609", "the text cannot be parsed"),
    "Untrusted": Kind("E1610", "the document carries code and was not trusted"),
    "UnknownName": Kind("E1611", "no node, stage or input has that name"),
    "NoMain": Kind("E1612", "a program has no graph called main"),
    "MissingReturn": Kind("E1613", "a graph that declares results has no return"),
    "ResultCount": Kind("E1614", "there are more or fewer values than names for them"),
    "Unsayable": Kind("E1615", "a graph has something that a .harp text cannot say"),
    "AfterReturn": Kind("E1616", "a statement stands after the return of its graph"),
    # files and environment
    "FileUnreadable": Kind("E1701", "a file cannot be read"),
    "FileUnwritable": Kind("E1702", "a file or folder cannot be written"),
    "CompilerMissing": Kind("E1703", "no C compiler was found"),
    "CompilerFailed": Kind("E1704", "the C or CUDA compiler failed or did not end"),
    "MissingPackage": Kind("E1705", "an optional package is needed"),
    "SanitizerMissing": Kind("E1707", "a sanitizer build was asked for and its runtime is not there"),
    "InputTooLarge": Kind("E1706", "an input exceeds a limit of size or depth"),
    # execution
    "InputMismatch": Kind("E1801", "an input has the wrong name, dtype, rank or shape"),
    "InvalidExecution": Kind("E1802", "an execution plan breaks a rule"),
    "OutOfMemory": Kind("E1803", "the program needs more memory than there is"),
    "IndexOutOfRange": Kind("E1804", "an index tensor or a view points outside its data"),
    "HostFault": Kind("E1805", "a host step failed"),
    "MeaningMissing": Kind("E1807", "a custom kernel has no numpy meaning to compare with"),
    "OutOfBounds": Kind("E1808", "a kernel reads or writes outside its buffers"),
    "KernelRace": Kind("E1809", "threads of a kernel touch the same memory and nothing orders them"),
    "KernelDeadlock": Kind("E1810", "threads of a kernel wait for each other without end"),
    "KernelMisuse": Kind("E1811", "a kernel uses an instruction in a way the hardware does not allow"),
    "DeviceFault": Kind("E1812", "a GPU or its driver refused or failed something"),
    "DivisionByZero": Kind("E1813", "an integer is divided by zero"),
    "CollectiveFailed": Kind("E1814", "processes that compute together could not exchange data"),
    "Interrupted": Kind("E1806", "interrupted by the user"),
    "InternalError": Kind("E1900", "a fault of Tatami itself"),
    # warnings
    "ExcessivePiecewise": Kind("W2101", "a value has very many pieces"),
    "LostContraction": Kind("W2201", "a contraction did not end as one contraction pattern"),
    "GuardNotNeutral": Kind("W2202", "outside its guard a reduce reads something else than the neutral element"),
    "ModelRepaired": Kind("W2601", "a model's file was not as its format says, and something in it was changed or left out"),
    "CheckedKernel": Kind("W2602", "a kernel of a document was edited, and its accesses are checked as it runs"),
    "CacheUnusable": Kind("W2701", "the cache folder cannot be used"),
    "UnknownDecision": Kind("W2501", "a decision has a key that nothing matches"),
}
"""Kind of a diagnostic -> its code and title."""
