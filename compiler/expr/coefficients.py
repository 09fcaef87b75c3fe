"""What the expansions know of a float format: its layout, and its fitted polynomials.

The polynomials are minimax fits with the coefficients rounded one after the other, lowest degree
first in each table; a comment says what is approximated, and to what relative error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

from planish.compiler.dtypes import F32, F64, I32, I64, U32, U64, DType

Table: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class Format:
    """A float format and the constants of its expansions."""

    dtype: DType
    signed: DType  # integers of the same width
    unsigned: DType
    mantissa: int  # bits after the leading one
    bias: int
    overflow: float  # e^x is inf from a little below here on
    underflow: float  # e^x rounds to 0 from a little above here on
    ln2: tuple[float, float]  # ln 2 as a sum
    two_over_ln2: tuple[float, float]
    half_pi: tuple[float, float, float]
    two_thirds_over_ln2: tuple[float, float]
    log_from: int  # bits of the float from which log takes the significand as it is
    root_half: int  # bits of sqrt(1/2)
    exp: Table  # e^r = 1 + r + r^2 p(r), |r| <= ln 2 / 2
    exp2: Table  # 2^r = 1 + r p(r), |r| <= 1/2
    log2_tail: Table  # log2((1 + s) / (1 - s)): what follows the terms in s (f32), s and s^3 (f64)
    sin: Table  # sin r = r + r^3 p(r^2), |r| <= pi / 4 (f32: 0.868)
    cos: Table  # cos r = 1 - r^2 / 2 + r^4 p(r^2), |r| <= pi / 4 (f32: 0.868)
    asin: Table  # asin x = x + x^3 p(x^2), x <= 1/2
    atan: Table  # atan x = x + x^3 p(x^2), x <= 1

    @property
    def magic(self) -> float:
        """Added, it rounds to an integer, which then stands in the low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def tiny(self) -> float:
        """The least normal number."""
        return 2.0 ** (1 - self.bias)


SINGLE: Final = Format(
    dtype=F32,
    signed=I32,
    unsigned=U32,
    mantissa=23,
    bias=127,
    overflow=89.0,
    underflow=-104.0,
    ln2=(0.6931471824645996, -1.9046542121259336e-09),
    two_over_ln2=(2.885390043258667, 3.851926067000022e-08),
    half_pi=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    two_thirds_over_ln2=(0.9617967009544373, -7.028461812552678e-09),
    log_from=0x3F2AAAAB,  # 2/3
    root_half=0x3F3504F3,
    # 2^-28.2
    exp=(0.49999994, 0.16666517, 0.04166809, 0.008369122, 0.0013838911),
    # 2^-28.3
    exp2=(0.6931472, 0.24022648, 0.055503596, 0.009618503, 0.0013390997, 0.00015327803),
    # 2^-36.4
    log2_tail=(0.9617967, 0.5770788, 0.4119273, 0.33648837),
    # 2^-26.8
    sin=(-0.16666645, 0.008331589, -0.00019443859),
    # 2^-31.4
    cos=(0.041666627, -0.0013886486, 2.4346698e-05),
    # 2^-27.6
    asin=(0.16666752, 0.074953094, 0.04546915, 0.024184782, 0.04215829),
    # 2^-27.7
    atan=(
        -0.333333, 0.1999853, -0.14264014, 0.10950861, -0.083992064, 0.057878822, -0.031093474,
        0.010866233, -0.0017821346,
    ),
)  # fmt: skip

DOUBLE: Final = Format(
    dtype=F64,
    signed=I64,
    unsigned=U64,
    mantissa=52,
    bias=1023,
    overflow=710.0,
    underflow=-746.0,
    ln2=(0.6931471805599453, 2.3190468138462996e-17),
    two_over_ln2=(2.8853900817779268, 4.0710547481862066e-17),
    half_pi=(1.5707963267948966, 6.123233995736765e-17, 1.082856673921914e-32),
    two_thirds_over_ln2=(0.9617966939259756, 5.0577616648125907e-17),
    log_from=0x3FE6A09E667F3BCD,
    root_half=0x3FE6A09E667F3BCD,
    # 2^-57.9
    exp=(
        0.5000000000000011, 0.16666666666666438, 0.04166666666652578, 0.0083333333334737,
        0.0013888888944871168, 0.0001984126956072183, 2.4801491729933544e-05,
        2.7557529987770705e-06, 2.7630763515276024e-07, 2.5020399329324216e-08,
    ),
    # 2^-57.0
    exp2=(
        0.6931471805599453, 0.24022650695910175, 0.05550410866482458, 0.009618129107575868,
        0.0013333558145566203, 0.00015403530480456037, 1.5252734737654455e-05,
        1.321542365431454e-06, 1.0177657363962577e-07, 7.0757622898668575e-09,
        4.518872454036437e-10,
    ),
    # 2^-73.4
    log2_tail=(
        0.5770780163555851, 0.4121985831113458, 0.3205988979127592, 0.2623081986621896,
        0.22195226999365295, 0.19240133887456726, 0.16845112830098063, 0.17282089048511945,
    ),
    # 2^-57.8
    sin=(
        -0.1666666666666663, 0.008333333333321783, -0.0001984126982928637, 2.755731350732658e-06,
        -2.5050728792361143e-08, 1.5895076271730675e-10,
    ),
    # 2^-63.8
    cos=(
        0.04166666666666659, -0.0013888888888872186, 2.4801587288295393e-05,
        -2.755731401512446e-07, 2.0875678085180592e-09, -1.1357336743020606e-11,
    ),
    # 2^-55.9
    asin=(
        0.16666666666665408, 0.07500000000337144, 0.044642856828229174, 0.03038195914066021,
        0.022371757970537476, 0.017359705855463613, 0.013885225633025017, 0.012169270830501488,
        0.0065277391475445715, 0.01952886485737057, -0.0162251309389186, 0.031912834377182335,
    ),
    # 2^-56.0
    atan=(
        -0.3333333333333307, 0.19999999999951748, -0.14285714282587975, 0.11111111007338452,
        -0.09090907007735728, 0.07692279888198732, -0.06666404417765162, 0.058805297771792206,
        -0.052535266567213926, 0.04722347993757027, -0.04219242773393721, 0.036643147090817424,
        -0.029905732501684202, 0.021987065639691224, -0.01390257069616668, 0.007197881783448321,
        -0.0028856078153263382, 0.0008315589643731464, -0.00015221100357843808,
        1.322998699254354e-05,
    ),
)  # fmt: skip

FORMATS: Final = {f.dtype: f for f in (SINGLE, DOUBLE)}

LOG2E: Final = 1 / math.log(2)
TWO_OVER_PI: Final = 2 / math.pi

# For f32: from |x| = 2^first on, y = x 2^-shift is below 2^50 and, but in the first row, an
# integer; the rest is 2^shift * 2 / pi modulo 4 as a sum of two doubles. With these shifts y times
# the lesser of the two is at most 0.052, and may be left out in rounding.
TWO_OVER_PI_WINDOWS: Final = (  # first, shift, sum
    (0, 0, 0.6366197723675813, 7.166494911215068e-17),
    (49, 26, 1.7235269743613935, -3.646819222375367e-17),
    (75, 52, 1.3227502381170073, 4.585413994155514e-17),
    (102, 79, -0.3284762738195453, 2.3488816399632256e-17),
)

# f32: log(1 + f) = f - f^2 / 2 + f^3 p(f), |f| <= 1/3; 2^-27.7
LOG: Final = (
    0.33333215, -0.24999805, 0.20010445, -0.16680181, 0.1400534, -0.12188344, 0.13986707,
    -0.12874489,
)  # fmt: skip

# f64: log((1 + s) / (1 - s)) = 2 s + s^3 p(s^2), |s| <= 0.172; 2^-58.5
LOG_DOUBLE: Final = (
    0.6666666666666734, 0.3999999999941662, 0.2857142874203638, 0.22222198603958448,
    0.18183562919078314, 0.15314082870088422, 0.14795655165217758,
)  # fmt: skip

# f32: tanh x = x / 8 + x p(x^2) / q(x^2), |x| <= 9.02. The scale of p and q and the last bits were
# searched for the least error as evaluated, with the value at 9.02 being 1 and no value above 1.
TANH_P: Final = (0.62343746, 0.0537267, 0.0001853575, -1.4574317e-05, -5.9640705e-08)
TANH_Q: Final = (0.7125, 0.33283037, 0.01843314, 0.00023392051, 5.5304423e-07)

# f32: erf x = x + x p(x^2), |x| < 47/32; 2^-26
ERF_NEAR: Final = (
    0.12837915, -0.37612554, 0.11283032, -0.026839357, 0.0051762364, -0.0008072386, 9.3027986e-05,
    -5.8061228e-06,
)  # fmt: skip
# f32: erf x = p(x - 13/4), 47/32 <= x <= 3.925; 2^-24.6 absolute, and 1 at the end
ERF_FAR: Final = (
    0.9999957, 2.9271248e-05, -9.6402844e-05, 0.00019345696, -0.00027180224, 0.00033553495,
    -0.00030174764, 9.681303e-05, -7.2238734e-05, 0.0001032349, 4.2052354e-05,
)  # fmt: skip

# f64: erf x = x + x p(x^2), |x| <= 1; 2^-56.3
ERF_NEAR_DOUBLE: Final = (
    0.1283791670955126, -0.3761263890318375, 0.11283791670954857, -0.026866170645072893,
    0.005223977624780855, -0.0008548326978741568, 0.0001205533103687721, -1.492559350636668e-05,
    1.6460972808851768e-06, -1.6350025138493535e-07, 1.4657879294046825e-08,
    -1.1365663916207615e-09, 5.945258417346164e-11,
)  # fmt: skip
# f64: e^(x^2) erfc x = p((x - 3) / (x + 3)), 1 <= x <= 5.95; 2^-57 of erf x
ERFCX_DOUBLE: Final = (
    0.17900115118135376, -0.326233560045902, 0.24560380166429976, -0.150115936343693,
    0.07166585013075909, -0.02439232787540972, 0.004270353805167292, 0.000713175287378983,
    -0.0005810922273723381, 7.639394815167441e-05, 0.00010295175696496759, 1.520326328485278e-05,
)  # fmt: skip
