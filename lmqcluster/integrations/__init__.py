"""Task libraries on lmqcluster: each module needs its library, which the extra of the same name installs."""
