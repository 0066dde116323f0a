module lmqcluster.test/other_language

go 1.21
