"""`cv.c1` .. `cv.c3`: image spaces in the manner of NASNet and AmoebaNet."""
